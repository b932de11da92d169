"""A producer id is given up in time: only where nothing that was sent with it is left unfenced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atonce.client import epoch_per_batch
from atonce.client.cluster import Cluster
from atonce.client.epoch_per_batch import ROTATE_FROM_EPOCH, EpochPerBatch
from atonce.client.offsets import TopicPartition
from atonce.errors import AttemptAborted, InvariantError

LAST_EPOCH = 32_766
PLACE = TopicPartition("out", 0)


class Coordinator(Cluster):
    """Answers as Kafka's: the bump of the last epoch gives a new producer id. Keeps what it was asked."""

    def __init__(self, epoch: int) -> None:
        self.producer_id, self.epoch = 7, epoch - 1
        self.asked: list[tuple[str, int, int]] = []

    def ask_coordinator(self, request: Any, key: str, kind: Any = "group", **_: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        if name == "InitProducerId":
            if request.producer_id >= 0:
                assert (request.producer_id, request.producer_epoch) == (self.producer_id, self.epoch)
            self.producer_id, self.epoch = (
                (self.producer_id + 1, 0) if self.epoch >= LAST_EPOCH else (self.producer_id, self.epoch + 1)
            )
        self.asked.append((name, self.producer_id, self.epoch))
        topics = getattr(request, "v3_and_below_topics", None) or []
        added = [
            SimpleNamespace(
                name=topic.name,
                results_by_partition=[
                    SimpleNamespace(partition_index=index, partition_error_code=0) for index in topic.partitions
                ],
            )
            for topic in topics
        ]
        return SimpleNamespace(
            error_code=0,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            results_by_topic_v3_and_below=added,
        )


def claimed(epoch: int) -> tuple[EpochPerBatch, Coordinator]:
    coordinator = Coordinator(epoch)
    made = EpochPerBatch(coordinator, "tx", 60_000, group="tx", outputs=lambda: [PLACE])
    made.init()
    return made, coordinator


def test_a_claim_with_a_high_epoch_fences_with_the_old_id_and_goes_on_with_a_new_one() -> None:
    transaction, coordinator = claimed(ROTATE_FROM_EPOCH)
    assert (transaction.producer_id, transaction.epoch) == (8, 0)
    assert {producer_id for name, producer_id, _ in coordinator.asked if name == "EndTxn"} == {7}


@pytest.mark.parametrize("commit", [True, False])
def test_the_id_changes_after_a_commit_or_behind_the_fence_of_an_abort(commit: bool) -> None:
    transaction, coordinator = claimed(ROTATE_FROM_EPOCH - 2)
    assert transaction.producer_id == 7
    transaction.grant(PLACE, transaction.producer_id, transaction.epoch)
    written_with = transaction.epoch
    coordinator.asked.clear()
    transaction.end(commit=commit)
    assert (transaction.producer_id, transaction.epoch) == (8, 0)
    fences = [(who, epoch) for name, who, epoch in coordinator.asked if name == "AddPartitionsToTxn"]
    assert fences == ([] if commit else [(7, written_with + 1)])


def test_no_task_is_ever_given_an_epoch_that_could_not_be_fenced_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_per_batch, "ROTATE_FROM_EPOCH", LAST_EPOCH - 20)
    transaction, _ = claimed(LAST_EPOCH - 60)
    given = []
    for number in range(60):
        transaction.grant(PLACE, transaction.producer_id, transaction.epoch)
        given.append((transaction.producer_id, transaction.epoch))
        transaction.end(commit=number % 3 == 0)
    assert len(set(given)) == 60
    assert max(epoch for who, epoch in given if who == 7) < LAST_EPOCH - 20


def test_what_was_not_known_when_the_attempt_began_is_not_granted() -> None:
    transaction, _ = claimed(0)
    with pytest.raises(AttemptAborted, match=r"out/1 was not known when the attempt began"):
        transaction.grant(TopicPartition("out", 1), transaction.producer_id, transaction.epoch)


def test_nothing_is_committed_that_was_not_begun() -> None:
    transaction, _ = claimed(0)
    with pytest.raises(InvariantError, match="nothing was added"):
        transaction.end(commit=True)


def test_a_claim_asks_first_whether_the_brokers_are_still_what_they_were() -> None:
    def no_longer() -> None:
        raise AttemptAborted("they are not")

    coordinator = Coordinator(0)
    with pytest.raises(AttemptAborted, match="they are not"):
        EpochPerBatch(coordinator, "tx", 60_000, group="tx", check=no_longer).init()
    assert coordinator.asked == []
