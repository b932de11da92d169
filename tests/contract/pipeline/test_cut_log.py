"""A log that was cut and written anew, past the position (F32): found by leader epochs, at a start and in a run.

Apache Kafka with one node, stopped, its segments removed, and started again under a higher leader epoch: what an
unclean election leaves, without three nodes. An ordinary restart raises the epoch as well, and must stay kept.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.errors import DataLossError
from atonce.local.servers.kafka import ApacheKafka
from atonce.spark.planning.planner import COLUMNS
from atonce.verify.wire.decode import Request, batch_heads
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.client.parts import eventually
from tests.contract.pipeline.parts import OUTPUTS, Output, Watcher, produce
from tests.contract.pipeline.test_same_input import copier, delivered, running, values


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as kafka:
        yield kafka


def cut(kafka: ApacheKafka, topic: str) -> None:
    """Takes the records of partition 0 away from under a stopped broker."""
    kafka.stop()
    folder = next(kafka.data.glob(f"node-*/log/{topic}-0"))
    for file in folder.iterdir():
        if file.name != "partition.metadata":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    kafka.restart()


def test_log_cut_and_written_anew_is_refused_and_an_ordinary_restart_is_not(
    own_kafka: ApacheKafka, scratch: Path, spark: Any
) -> None:
    servers, topic = own_kafka.servers, f"cut-{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=1)

    def made(kind: str) -> tuple[atonce.Pipeline, Output]:
        output = OUTPUTS[kind](uuid.uuid4().hex[:8], servers, scratch, "")
        return copier(servers, atonce.Kafka(topic, servers=servers), output, scratch), output

    stopped, runs = [made("kafka"), made("sqlite")], made("sqlite")
    produce(servers, topic, range(20), partitions=1)
    for pipeline, _ in stopped:
        pipeline.run(available_now=True)
    with running(runs[0]) as ended:
        eventually(delivered(runs[1], range(20)), 60)
        own_kafka.stop()
        own_kafka.restart()
        produce(servers, topic, range(20, 40), partitions=1)
        for pipeline, output in stopped:
            pipeline.run(available_now=True)
            assert sorted(output.values()) == values(range(40))
        eventually(delivered(runs[1], range(40)), 90)

        cut(own_kafka, topic)
        produce(servers, topic, range(1000, 1100), partitions=1)
        error = ended()
    assert isinstance(error, DataLossError), error
    assert f"{topic}/0" in str(error) and "40" in str(error) and "leader epoch" in str(error), error
    for pipeline, _ in stopped:
        with pytest.raises(DataLossError, match=rf"{topic}/0.* 40.*leader epoch \d+.* ends at offset 0"):
            pipeline.run(available_now=True)
    for _, output in (*stopped, runs):
        assert sorted(output.values()) == values(range(40))


def in_the_next_epoch(request: Request, body: Any) -> Any:
    """A Fetch whose batches were written by a leader that was elected since. No checksum covers the epoch."""

    def later(part: Any) -> Any:
        records, at = bytearray(part.records or b""), 0
        for head in batch_heads(bytes(records)):
            records[at + 12 : at + 16] = (1).to_bytes(4, "big")
            at += head.size
        return replace(part, records=bytes(records))

    topics = (replace(topic, partitions=tuple(map(later, topic.partitions))) for topic in body.responses)
    return replace(body, responses=tuple(topics))


def epochs_that_end_at(end: int) -> Any:
    def change(request: Request, body: Any) -> Any:
        topics = (
            replace(topic, partitions=tuple(replace(part, end_offset=end) for part in topic.partitions))
            for topic in body.topics
        )
        return replace(body, topics=tuple(topics))

    return change


def beyond(offset: int) -> Any:
    def asked(request: Request, facts: Any) -> bool:
        body = request.body()
        return any(part.fetch_offset >= offset for topic in body.topics for part in topic.partitions)

    return asked


def in_two_tasks(source: atonce.Kafka, output: Output, scratch: Path, watcher: Watcher) -> atonce.Pipeline:
    """A function of the user's on rows: nothing runs inside the source, where a small batch would be one task."""
    name = f"torn-{uuid.uuid4().hex[:8]}"
    pipeline = atonce.Pipeline(name, checkpoint=str(scratch / name), say=lambda _: None, spark={COLUMNS: "false"})
    return (
        replace(pipeline, observer=watcher)
        .read(source)
        .transform(lambda df: df.selectExpr("cast(key as string) key", "cast(value as string) value"))
        .write(output.sink)
    )


@pytest.mark.parametrize("kind", ["kafka", "sqlite"])
def test_batch_whose_tasks_met_two_logs_is_not_delivered_and_after_a_failover_it_is(
    kafka_servers: str, scratch: Path, spark: Any, kind: str
) -> None:
    """Two tasks read halves of one partition, the second of a leader of the next epoch: elected cleanly, or not."""
    topic = f"torn-{uuid.uuid4().hex[:8]}"
    with Cluster(kafka_servers) as cluster:
        create_topic(cluster, topic, partitions=1)
    produce(kafka_servers, topic, range(40), partitions=1)
    output = OUTPUTS[kind](uuid.uuid4().hex[:8], kafka_servers, scratch, "")
    with Proxy(kafka_servers) as proxy:
        source = atonce.Kafka(topic, servers=proxy.servers, options={"minPartitions": "2"})
        pipeline = in_two_tasks(source, output, scratch, watcher := Watcher())
        later = Rule(
            apis=frozenset({"fetch"}), action=Action.CHANGE, change=in_the_next_epoch, only_if=beyond(20), times=1000
        )
        cut_off = Rule(
            apis=frozenset({"offset_for_leader_epoch"}), action=Action.CHANGE, change=epochs_that_end_at(10), times=100
        )
        proxy.add(later)
        proxy.add(cut_off)
        with pytest.raises(DataLossError, match=rf"{topic}/0: read up to offset 20, .* epoch 0, .* ends at offset 10"):
            pipeline.run(available_now=True)
        assert later.fired and cut_off.fired
        if kind == "kafka":  # its transaction is over: readers behind it wait for nobody
            assert Step.ABORTED in watcher.steps()
        cut_off.seen = cut_off.nth + cut_off.times  # from here on the broker's own word stands
        pipeline.run(available_now=True)
    assert sorted(output.values()) == values(range(40))
