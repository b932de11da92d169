"""The ledger on Kafka has no conditional commit: it is read for every commit and compared (F27, F33)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from atonce.client.cluster import Cluster
from atonce.client.offsets import Committed, TopicPartition, commit, committed
from atonce.client.operate.admin import create_topic
from atonce.connectors.kafka.ledger import KafkaLedger
from atonce.connectors.kafka.owner import Owner
from atonce.connectors.kafka.protocol import asked
from atonce.delivery.contract import Identity
from atonce.delivery.progress import Cut, Progress
from atonce.errors import LedgerMismatch, ReplacedError
from atonce.guarantee import Guarantee


class Pipeline:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def owner(self, instance: str, claimed: bool = False) -> Owner:
        who = Identity(name=self.name, instance=instance, guarantee=Guarantee.EFFECTIVELY_ONCE, claimed=claimed)
        make = asked(self.cluster).transactions(self.cluster, self.name, self.outputs, lambda: None)
        return Owner(self.cluster, who, KafkaLedger(group=self.name), 60_000, make)

    def outputs(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, 0)]

    def at(self, instance: str, batch_id: int, sequence: int) -> Progress:
        return Progress(
            instance=instance,
            query_id="q",
            batch_id=batch_id,
            positions={f"{self.name}/0": 10 * (batch_id + 1)},
            source_ids={self.name: "id"},
            sequence=sequence,
            epochs={f"{self.name}/0": 3},
            first={f"{self.name}/0": 0},
            recent=(Cut(batch_id=batch_id, digest="0123456789abcdef"),),
        )

    def held(self) -> dict[TopicPartition, Committed]:
        """The ledger's offset; asked by name, it is waited for until the transaction's markers are written."""
        return committed(self.cluster, self.name, [TopicPartition(self.name, 0)])

    def record(self, owner: Owner, progress: Progress) -> None:
        owner.begin()
        owner.commit(progress)


@pytest.fixture(params=["embedded", "apache_kafka", "embedded_v1", "kafka_3_9", "kafka_3_9_unverified"])
def pipeline(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    name = f"owner-{uuid.uuid4().hex[:8]}"
    with Cluster(request.getfixturevalue(request.param)) as cluster:
        create_topic(cluster, name, partitions=1)
        yield Pipeline(cluster, name)


def test_progress_comes_back_whole_and_the_next_instance_takes_it_over(pipeline: Pipeline) -> None:
    first = pipeline.owner("a")
    assert first.claim() is None
    pipeline.record(first, pipeline.at("a", 0, 1))
    taken = pipeline.owner("b").claim()
    assert taken == replace(pipeline.at("a", 0, 2), instance="b")
    with pytest.raises(ReplacedError, match="instance b"):
        pipeline.record(first, pipeline.at("a", 1, 2))


def test_ledger_that_went_back_is_refused_with_both_positions_and_nothing_lands_on_it(pipeline: Pipeline) -> None:
    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 0, 1))
    older = pipeline.held()
    pipeline.record(owner, pipeline.at("a", 1, 2))
    assert pipeline.held() != older
    commit(pipeline.cluster, pipeline.name, older)
    both = rf"stands at batch 0, .*/0': 10.*left at batch 1, .*/0': 20.*atonce reset {pipeline.name}"
    with pytest.raises(LedgerMismatch, match=both):
        owner.check_claim()
    with pytest.raises(LedgerMismatch, match=both):
        pipeline.record(owner, pipeline.at("a", 2, 3))
    assert pipeline.held() == older


def test_offsets_that_a_tool_writes_under_a_running_pipeline_are_refused_until_a_reset_says_where(
    pipeline: Pipeline,
) -> None:
    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 0, 7))
    assert pipeline.held()
    commit(pipeline.cluster, pipeline.name, {TopicPartition(pipeline.name, 0): Committed(offset=3)})
    with pytest.raises(LedgerMismatch, match=r"/0 at 3"):
        pipeline.record(owner, pipeline.at("a", 1, 8))
    reset = pipeline.owner("r")
    with pytest.raises(LedgerMismatch):
        reset.claim()
    pipeline.record(reset, pipeline.at("r", 4, 9))
    assert pipeline.owner("b").claim() is not None


def test_reset_forgets_what_others_wrote_beside_the_places_that_it_writes(pipeline: Pipeline) -> None:
    """A consumer that used the pipeline's name on another topic: the reset says where to begin, and the rest must go."""
    other = f"{pipeline.name}-other"
    create_topic(pipeline.cluster, other, partitions=1)
    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 0, 1))
    assert pipeline.held()
    commit(pipeline.cluster, pipeline.name, {TopicPartition(other, 0): Committed(offset=3)})
    reset = pipeline.owner("r")
    with pytest.raises(LedgerMismatch, match=rf"{other}/0 at 3"):
        reset.claim()
    pipeline.record(reset, pipeline.at("r", 4, 9))
    taken = pipeline.owner("b").claim()
    assert taken is not None and taken.batch_id == 4


def test_topic_that_is_gone_does_not_keep_the_others_from_being_recorded(pipeline: Pipeline) -> None:
    """fail_on_data_loss: false, and one topic of a pattern was deleted."""
    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 0, 1))
    with_gone = pipeline.at("a", 1, 2)
    with_gone = replace(with_gone, positions={**(with_gone.positions or {}), f"{pipeline.name}-gone/0": 7})
    pipeline.record(owner, with_gone)
    pipeline.record(owner, replace(with_gone, batch_id=2, sequence=3))
    taken = pipeline.owner("b").claim()
    assert taken is not None and taken.positions == {f"{pipeline.name}/0": 20}


def test_batch_that_is_acknowledged_is_known_to_be_in(pipeline: Pipeline) -> None:
    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 0, 1))
    assert owner.holds(pipeline.at("a", 0, 1)) and not owner.holds(pipeline.at("a", 1, 2))


def test_group_that_was_deleted_under_a_running_pipeline_is_refused(pipeline: Pipeline) -> None:
    from confluent_kafka.admin import AdminClient

    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 0, 1))
    admin = AdminClient({"bootstrap.servers": pipeline.cluster.servers})
    admin.delete_consumer_groups([pipeline.name])[pipeline.name].result(30)
    with pytest.raises(LedgerMismatch, match="stands at nothing, and was left at batch 0"):
        pipeline.record(owner, pipeline.at("a", 1, 2))


def test_second_claim_of_one_instance_never_takes_the_pipeline_back(pipeline: Pipeline) -> None:
    first = pipeline.owner("a")
    first.claim()
    pipeline.record(first, pipeline.at("a", 0, 1))
    pipeline.owner("b").claim()
    with pytest.raises(ReplacedError, match="instance b"):
        pipeline.owner("a", claimed=True).claim()


def test_progress_that_is_behind_what_was_acknowledged_is_known(pipeline: Pipeline) -> None:
    owner = pipeline.owner("a")
    owner.claim()
    pipeline.record(owner, pipeline.at("a", 3, 4))
    assert owner.is_behind(pipeline.at("a", 2, 3)) and not owner.is_behind(pipeline.at("a", 4, 5))
