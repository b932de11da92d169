"""A pipeline takes over from a query with Spark's own Kafka connector, at the record where that stopped."""

from __future__ import annotations

import json
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic, delete_topic
from atonce.connectors.kafka.source import KafkaSource
from atonce.errors import DataLossError, LedgerMismatch, RefusedError, UsageError
from atonce.spark.checkpoint import left
from tests.contract.pipeline.parts import consume, produce

ALL = 40


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a checkpoint is watched for ten seconds is tested where it costs nothing."""
    monkeypatch.setattr(left, "QUIET_S", 0.0)


@pytest.fixture
def topic(embedded: str) -> str:
    """Record i stands in partition i % 2."""
    name = f"adopt-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(embedded, name, range(ALL), partitions=2)
    return name


def checkpoint(folder: Path, topic: str, *ends: tuple[int, int], committed: int | None = None) -> str:
    """As Spark's connector leaves it: batch N ends at `ends[N]`, and the first `committed` of them are committed."""
    for number, end in enumerate(ends):
        offsets = json.dumps({topic: {str(partition): at for partition, at in enumerate(end)}})
        _write(folder / "offsets" / str(number), f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
        if committed is None or number < committed:
            _write(folder / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def pipeline(topic: str, servers: str, scratch: Path, sink: Any = None) -> atonce.Pipeline:
    made = atonce.Pipeline(topic, checkpoint=str(scratch / "ours"), say=lambda _: None)
    return (
        made.read(atonce.Kafka(topic, servers=servers))
        .transform("SELECT CAST(value AS STRING) AS value FROM input")
        .write(sink or atonce.SQLite(scratch / "out.db", table="rows"))
    )


def numbers(scratch: Path) -> list[int]:
    with sqlite3.connect(scratch / "out.db") as connection:
        return sorted(int(value.split()[1]) for (value,) in connection.execute("SELECT value FROM rows"))


def test_the_pipeline_begins_at_the_end_of_the_last_committed_batch(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    left_behind = checkpoint(scratch / "theirs", topic, (3, 4), (6, 5))
    adopted = pipeline(topic, embedded, scratch).adopt(left_behind)
    assert adopted.positions == {f"{topic}/0": 6, f"{topic}/1": 5}
    assert f"goes on after batch 1 of {left_behind}: {topic}/0 at 6, {topic}/1 at 5" in adopted.words()
    pipeline(topic, embedded, scratch).run(available_now=True)
    assert numbers(scratch) == sorted([*range(12, ALL, 2), *range(11, ALL, 2)])


def test_into_kafka_too_and_the_group_shows_it_at_once(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    out = f"out-{topic}"
    made = pipeline(topic, embedded, scratch, atonce.Kafka(out, servers=embedded))
    made.adopt(checkpoint(scratch / "theirs", topic, (20, 0)))
    with Cluster(embedded) as cluster:
        from atonce.client.operate.admin import group_lag

        assert {each.partition: each.committed for each in group_lag(cluster, topic)} == {0: 20, 1: 0}
    made.run(available_now=True)
    assert sorted(value for _, value in consume(embedded, out)) == sorted(f"value {i}" for i in range(1, ALL, 2))
    with pytest.raises(RefusedError, match="has a checkpoint of its own"):
        made.adopt(checkpoint(scratch / "theirs", topic, (20, 0)))


@pytest.mark.parametrize(("choice", "first"), [("again", (2, 2)), ("done", (10, 9))])
def test_a_batch_without_a_commit_is_its_owner_s_to_decide(
    embedded: str, topic: str, scratch: Path, spark: Any, choice: Any, first: tuple[int, int]
) -> None:
    left_behind = checkpoint(scratch / "theirs", topic, (2, 2), (10, 9), committed=1)
    made = pipeline(topic, embedded, scratch)
    with pytest.raises(RefusedError) as refused:
        made.adopt(left_behind)
    words = str(refused.value)
    assert "batch 1 was planned and not committed, 15 offsets after batch 0" in words
    assert f"{topic}/0: 2 to 10; {topic}/1: 2 to 9" in words
    assert "\n" not in words
    assert not (scratch / "out.db").exists(), "what is refused leaves nothing behind"
    made.adopt(left_behind, unfinished=choice)
    made.run(available_now=True)
    assert numbers(scratch) == sorted([*range(2 * first[0], ALL, 2), *range(2 * first[1] + 1, ALL, 2)])


def test_adopting_twice_is_refused_and_changes_nothing(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    made = pipeline(topic, embedded, scratch)
    made.adopt(checkpoint(scratch / "theirs", topic, (6, 5)))
    with pytest.raises(LedgerMismatch, match="it was adopted, and has not run since"):
        made.adopt(checkpoint(scratch / "other", topic, (1, 1)))
    made.run(available_now=True)
    assert len(numbers(scratch)) == ALL - 11


def test_a_pipeline_that_runs_is_not_fenced_by_an_adoption_that_is_refused(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    made = pipeline(topic, embedded, scratch)
    made.run(available_now=True)
    epoch = _epoch(scratch)
    with pytest.raises(RefusedError, match="has planned batch"):
        made.adopt(checkpoint(scratch / "theirs", topic, (6, 5)))
    elsewhere = pipeline(topic, embedded, scratch / "theirs", atonce.SQLite(scratch / "out.db", table="rows"))
    with pytest.raises(LedgerMismatch, match="it holds batch 0"):
        elsewhere.adopt(str(scratch / "theirs"))
    assert _epoch(scratch) == epoch


def _epoch(scratch: Path) -> Any:
    with sqlite3.connect(scratch / "out.db") as connection:
        return connection.execute("SELECT owner_epoch, instance FROM atonce_ledger").fetchall()


def test_positions_are_compared_with_the_log(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    made = pipeline(topic, embedded, scratch)
    with pytest.raises(DataLossError, match=f"{topic}/1: read up to 21, ends at 20"):
        made.adopt(checkpoint(scratch / "beyond", topic, (20, 21)))
    with pytest.raises(UsageError, match="the query read orders/0, orders/1, which this pipeline does not"):
        made.adopt(checkpoint(scratch / "another", "orders", (1, 1)))
    both = made.read(atonce.Kafka(f"{topic},second-{topic}", servers=embedded))
    with Cluster(embedded) as cluster:
        create_topic(cluster, f"second-{topic}", partitions=1)
    with pytest.raises(UsageError, match=f"reads second-{topic}, of which the checkpoint says nothing"):
        both.adopt(checkpoint(scratch / "one", topic, (1, 1)))


def test_a_topic_that_was_made_again_and_is_shorter_is_noticed(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    with Cluster(embedded) as cluster:
        delete_topic(cluster, topic)
        create_topic(cluster, topic, partitions=2)
    with pytest.raises(DataLossError, match="they were made again or cut"):
        pipeline(topic, embedded, scratch).adopt(checkpoint(scratch / "theirs", topic, (6, 5)))


def test_a_position_inside_an_open_transaction_is_waited_for(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    """Spark's connector reads what is not committed: its end may lie above the last stable offset."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": embedded, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(ALL, ALL + 6):
        producer.produce(topic, value=f"value {number}", partition=0)
    producer.flush(30)
    made = pipeline(topic, embedded, scratch)
    ends = KafkaSource(atonce.Kafka(topic, servers=embedded)).ends()
    assert ends[f"{topic}/0"] == (0, 26)
    made.adopt(checkpoint(scratch / "theirs", topic, (24, 20)))
    made.run(available_now=True)
    assert numbers(scratch) == []
    producer.commit_transaction(30)
    made.run(available_now=True)
    assert numbers(scratch) == [ALL + 4, ALL + 5]
