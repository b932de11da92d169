"""What brokers of transaction protocol 1 do with requests that come late, and that a fence stops every one of them.

Verifying brokers refuse all but a late AddPartitions; others take rows and offsets of an ended attempt into the next
one. The first half is what the protocol builds on, the second what it makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from atonce.client.epoch_per_batch import EpochPerBatch
from atonce.client.errors import KafkaCode, code_name
from atonce.client.offsets import Committed, TopicPartition, committed
from atonce.client.produce import Sender
from atonce.client.transaction import Transaction
from atonce.connectors.kafka.protocol import asked
from atonce.errors import AtOnceError
from tests.contract.client.parts import LossyCluster, blobs, fresh_name, fresh_topic, read_values

REFUSED = {"TRANSACTION_ABORTABLE", "INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
TAKEN = {"NONE"}


class Bare(EpochPerBatch):
    """The single requests, without what belongs together."""

    def init(self, *, timeout_ms: int = 60_000) -> None:
        Transaction.init(self, timeout_ms=timeout_ms)
        self._forget()

    def end_only(self, commit: bool) -> None:
        self._send_end(commit, 20_000)
        Transaction.wait_complete(self)
        self._forget()

    def add(self, *places: TopicPartition) -> None:
        self._add(set(places))

    def add_offsets(self) -> None:
        self._add_offsets()

    def bump(self) -> None:
        self._next_epoch(20_000)

    def bare_offsets(self, place: TopicPartition, offset: int) -> None:
        Transaction.commit_offsets(self, self._group, {place: Committed(offset=offset)}, timeout_ms=1_000)

    def fence(self, *places: TopicPartition) -> None:
        self._fence(places)


@dataclass
class Scene:
    cluster: LossyCluster
    verified: bool

    def __post_init__(self) -> None:
        self.topic = fresh_topic(self.cluster.servers, 2)
        self.places = [TopicPartition(self.topic, p) for p in (0, 1)]
        self.name = fresh_name("tx")
        self.driver = self.newcomer()

    def newcomer(self) -> Bare:
        made = Bare(self.cluster, self.name, 60_000, group=self.name)
        made.init()
        return made

    def task(self, driver: Bare) -> Sender:
        """A task of the driver's present epoch; it keeps that epoch, and its sequences, whatever happens."""
        return Sender(
            self.cluster,
            transactional_id=self.name,
            producer_id=driver.producer_id,
            epoch=driver.epoch,
            protocol=1,
            delivery_timeout_ms=1_000,
        )

    def writes(self, task: Sender, partition: int = 0, number: int = 0) -> str:
        def write() -> None:
            task.send(self.topic, partition, blobs([number])[0])
            task.flush()

        return answered(write)

    def committed_batch(self) -> Sender:
        """One batch in partition 0, committed and not bumped; returns its task."""
        task = self.task(self.driver)
        self.driver.add(*self.places)
        assert self.writes(task) == "NONE"
        self.driver.end_only(commit=True)
        return task

    def of_a_kind(self, answer: str) -> bool:
        return answer in (REFUSED if self.verified else TAKEN)


def answered(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except AtOnceError as error:
        return code_name(error.code) if isinstance(error, KafkaCode) else type(error).__name__
    return "NONE"


@pytest.fixture
def scene(older_servers: str) -> Iterator[Scene]:
    with LossyCluster(older_servers) as cluster:
        yield Scene(cluster, verified=not asked(cluster).unverified)


def test_a_produce_of_the_same_epoch_after_the_markers_is_taken_only_where_nobody_verifies(scene: Scene) -> None:
    task = scene.committed_batch()
    assert scene.of_a_kind(scene.writes(task, number=1))


def test_a_produce_of_the_old_epoch_after_the_bump_is_taken_only_where_nobody_verifies(scene: Scene) -> None:
    task = scene.committed_batch()
    scene.driver.bump()
    assert scene.of_a_kind(scene.writes(task, number=1))


def test_a_late_commit_of_offsets_is_taken_only_where_nobody_verifies(scene: Scene) -> None:
    place = scene.places[0]
    scene.driver.add_offsets()
    scene.driver.bare_offsets(place, 7)
    scene.driver.end_only(commit=True)
    assert scene.of_a_kind(answered(lambda: scene.driver.bare_offsets(place, 8)))


def test_an_idle_old_driver_is_heard_after_a_bare_claim_only_where_nobody_verifies(scene: Scene) -> None:
    task = scene.committed_batch()
    scene.newcomer()
    assert scene.of_a_kind(scene.writes(task, number=1))


def test_a_late_request_to_add_partitions_begins_a_transaction_on_every_broker(scene: Scene) -> None:
    scene.committed_batch()
    assert answered(lambda: scene.driver.add(scene.places[1])) == "NONE"


def test_the_coordinator_hears_nobody_of_an_old_epoch_after_the_bump(scene: Scene) -> None:
    scene.committed_batch()
    old = scene.driver._epoch
    scene.driver.bump()
    new, scene.driver._epoch = scene.driver._epoch, old
    assert answered(lambda: scene.driver.add(scene.places[0])) in REFUSED
    assert answered(lambda: scene.driver.end_only(commit=True)) in REFUSED
    assert answered(scene.driver.add_offsets) in REFUSED
    # The bump itself is answered alike when it is repeated: an answer that was lost costs nothing.
    scene.driver.bump()
    assert scene.driver.epoch == new


def test_nothing_of_an_older_epoch_is_taken_behind_a_fence(scene: Scene) -> None:
    task, place = scene.task(scene.driver), scene.places[0]
    scene.driver.add(place)
    scene.driver.add_offsets()
    assert scene.writes(task) == "NONE"
    scene.driver.bare_offsets(place, 7)
    old = scene.driver.epoch
    scene.driver.end_only(commit=False)
    scene.driver.bump()
    scene.driver.fence(*scene.places)
    assert scene.writes(task, partition=0, number=1) == "INVALID_PRODUCER_EPOCH"
    assert scene.writes(task, partition=1, number=2) == "INVALID_PRODUCER_EPOCH", "where it never wrote before"
    new, scene.driver._epoch = scene.driver._epoch, old
    assert answered(lambda: scene.driver.bare_offsets(place, 8)) in REFUSED
    scene.driver._epoch = new
    assert committed(scene.cluster, scene.name) == {}


# What the driver's transaction makes of it


@pytest.fixture
def driver(scene: Scene) -> EpochPerBatch:
    return claimed(scene)


def claimed(scene: Scene) -> EpochPerBatch:
    made = EpochPerBatch(scene.cluster, scene.name, 60_000, group=scene.name, outputs=lambda: scene.places)
    made.init()
    return made


def attempt(scene: Scene, driver: EpochPerBatch, numbers: list[int], partitions: tuple[int, ...] = (0, 1)) -> Sender:
    """A task that is granted and writes; it lives on."""
    driver.ready()
    task = Sender(
        scene.cluster,
        transactional_id=scene.name,
        producer_id=driver.producer_id,
        epoch=driver.epoch,
        protocol=1,
        delivery_timeout_ms=5_000,
    )
    for partition in partitions:
        driver.grant(scene.places[partition], driver.producer_id, driver.epoch)
        assert scene.writes(task, partition, numbers[partition]) == "NONE"
    return task


def test_a_task_of_an_aborted_attempt_cannot_write_into_the_next_one(scene: Scene, driver: EpochPerBatch) -> None:
    late = attempt(scene, driver, [0, 1])
    driver.end(commit=False)
    assert scene.writes(late, 0, 90) in REFUSED, "before the next attempt"
    attempt(scene, driver, [10, 11])
    assert scene.writes(late, 1, 91) in REFUSED, "while it runs"
    driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=1)})
    driver.end(commit=True)
    assert scene.writes(late, 0, 92) in REFUSED, "after it"
    assert [read_values(scene.cluster, scene.topic, p) for p in (0, 1)] == [["v10"], ["v11"]]


def test_a_task_of_a_driver_that_was_replaced_cannot_write(scene: Scene, driver: EpochPerBatch) -> None:
    """It was idle when the new one came, so there was nothing to abort."""
    late = attempt(scene, driver, [0, 1])
    driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=1)})
    driver.end(commit=True)
    newer = claimed(scene)
    assert scene.writes(late, 0, 90) in REFUSED
    assert answered(lambda: driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=9)})) in REFUSED
    assert answered(lambda: Transaction.commit_offsets(driver, scene.name, {scene.places[0]: Committed(offset=9)})) in (
        REFUSED
    )
    attempt(scene, newer, [10, 11])
    newer.commit_offsets(scene.name, {scene.places[0]: Committed(offset=2)})
    newer.end(commit=True)
    assert [read_values(scene.cluster, scene.topic, p) for p in (0, 1)] == [["v0", "v10"], ["v1", "v11"]]
    assert committed(scene.cluster, scene.name)[scene.places[0]].offset == 2


def test_partitions_that_were_fenced_must_be_granted_again(scene: Scene, driver: EpochPerBatch) -> None:
    """The list of added partitions is cleared with its transaction: a verifying broker would refuse the rows."""
    for number in range(3):
        attempt(scene, driver, [number, 10 + number])
        driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=number)})
        driver.end(commit=number != 1)
    assert read_values(scene.cluster, scene.topic, 1) == ["v10", "v12"]


def test_a_late_grant_begins_no_transaction(scene: Scene, driver: EpochPerBatch) -> None:
    producer_id, epoch = driver.producer_id, driver.epoch
    attempt(scene, driver, [0, 1])
    driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=1)})
    driver.end(commit=True)
    assert answered(lambda: driver.grant(scene.places[0], producer_id, epoch)) == "AttemptAborted"
    driver.end(commit=False)
    attempt(scene, driver, [2, 3])
    driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=2)})
    driver.end(commit=True)
    assert read_values(scene.cluster, scene.topic, 0) == ["v0", "v2"]


def test_every_attempt_has_an_epoch_of_its_own_also_one_that_wrote_nothing(scene: Scene, driver: EpochPerBatch) -> None:
    """Its number names the attempt to the lease: a task that is left over must not be granted anything in the next."""
    seen = {driver.epoch}
    for _ in range(3):
        driver.ready()
        driver.end(commit=False)
        assert driver.epoch not in seen
        seen.add(driver.epoch)


@pytest.mark.parametrize("lost", ["InitProducerId", "AddPartitionsToTxn", "EndTxn", "TxnOffsetCommit"])
def test_an_answer_that_is_lost_changes_nothing(scene: Scene, driver: EpochPerBatch, lost: str) -> None:
    scene.cluster.lose_call_answer = lost
    attempt(scene, driver, [0, 1])
    driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=1)})
    driver.end(commit=True)
    assert read_values(scene.cluster, scene.topic, 0) == ["v0"]
    assert committed(scene.cluster, scene.name)[scene.places[0]].offset == 1
    attempt(scene, driver, [2, 3])
    driver.end(commit=False)
    assert read_values(scene.cluster, scene.topic, 0) == ["v0"]


def test_partitions_added_after_the_claim_are_fenced_before_they_are_granted(
    scene: Scene, driver: EpochPerBatch
) -> None:
    more = TopicPartition(fresh_topic(scene.cluster.servers), 0)
    assert answered(lambda: driver.grant(more, driver.producer_id, driver.epoch)) == "AttemptAborted"
    scene.places.append(more)
    driver.ready()
    driver.grant(more, driver.producer_id, driver.epoch)
    driver.end(commit=False)


# What each part of it is for: a driver that leaves one out is caught


class NoFence(EpochPerBatch):
    def _fence(self, places: Iterable[TopicPartition]) -> None:
        self._fenced |= set(places)


class BumpTooLate(EpochPerBatch):
    """The epoch is raised only when the next attempt begins."""

    def _next_epoch(self, timeout_ms: int) -> None:
        self._forget()

    def ready(self) -> None:
        super()._next_epoch(20_000)


class GrantsLate(EpochPerBatch):
    def grant(self, place: TopicPartition, producer_id: int, epoch: int) -> None:
        self._add({place})


class ForgetsNothing(EpochPerBatch):
    def grant(self, place: TopicPartition, producer_id: int, epoch: int) -> None:
        if not hasattr(self, "ever"):
            self.ever: set[TopicPartition] = set()
        self._add({place} - self.ever)
        self.ever.add(place)


def exact(scene: Scene, kind: type[EpochPerBatch]) -> bool:
    """An attempt that is aborted, whose task and grants come late, and one that commits; nothing else is visible."""
    driver = kind(scene.cluster, scene.name, 60_000, group=scene.name, outputs=lambda: scene.places)
    driver.init()
    try:
        producer_id, epoch = driver.producer_id, driver.epoch
        late = attempt(scene, driver, [0, 1])
        driver.end(commit=False)
        scene.writes(late, 0, 90)
        answered(lambda: driver.grant(scene.places[1], producer_id, epoch))
        driver.ready()
        scene.writes(late, 0, 91)
        attempt(scene, driver, [10, 11])
        scene.writes(late, 0, 92)
        driver.commit_offsets(scene.name, {scene.places[0]: Committed(offset=1)})
        driver.end(commit=True)
        idle = answered(lambda: driver.grant(scene.places[0], producer_id, epoch)) != "NONE"
    except (AtOnceError, AssertionError):
        return False
    return idle and [read_values(scene.cluster, scene.topic, p) for p in (0, 1)] == [["v10"], ["v11"]]


def test_the_driver_as_it_is_keeps_everything_late_out(scene: Scene) -> None:
    assert exact(scene, EpochPerBatch)


@pytest.mark.parametrize("mutant", [NoFence, BumpTooLate, GrantsLate])
def test_a_driver_that_leaves_a_part_out_is_caught_where_nobody_verifies(
    kafka_3_9_unverified: str, mutant: type[EpochPerBatch]
) -> None:
    with LossyCluster(kafka_3_9_unverified) as cluster:
        assert not exact(Scene(cluster, verified=False), mutant)


def test_a_driver_that_does_not_add_partitions_again_is_caught_where_brokers_verify(embedded_v1: str) -> None:
    with LossyCluster(embedded_v1) as cluster:
        assert not exact(Scene(cluster, verified=True), ForgetsNothing)
