"""Rows account for offsets: a batch says how many it took, how many records it got, and why the rest gave none."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.spark.planning.planner import COLUMNS
from tests.contract.client.parts import quota
from tests.contract.pipeline.parts import OUTPUTS, Watcher, produce


def aborted(servers: str, topic: str, numbers: range) -> None:
    """Records of a transaction that was aborted, and the marker that says so."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in numbers:
        producer.produce(topic, value=f"value {i}", partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


@pytest.mark.parametrize(("kind", "columns"), [("kafka", "true"), ("kafka", "false"), ("sqlite", "false")])
def test_batch_says_what_became_of_each_offset(
    kafka_servers: str, scratch: Path, spark: Any, kind: str, columns: str
) -> None:
    name = f"told-{uuid.uuid4().hex[:8]}"
    with Cluster(kafka_servers) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(kafka_servers, name, range(20), partitions=2)
    aborted(kafka_servers, name, range(100, 107))
    watcher, output = Watcher(), OUTPUTS[kind](uuid.uuid4().hex[:8], kafka_servers, scratch, "")
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / name), observer=watcher, spark={COLUMNS: columns})
        .read(atonce.Kafka(name, servers=kafka_servers, options={"minPartitions": "4"}))
        .transform("SELECT CAST(value AS STRING) AS value FROM input WHERE CAST(value AS STRING) <> 'value 3'")
        .write(output.sink)
    )
    pipeline.run(available_now=True)
    told = [event.read for event in watcher.events if event.step is Step.DELIVERED]
    assert told == [{"offsets": 28, "records": 20, "control": 1, "aborted": 7, "missing": 0, "gone": 0, "filtered": 1}]
    assert len(output.values()) == 19

    produce(kafka_servers, name, range(20, 24), partitions=2)
    replace(pipeline, observer=(second := Watcher())).run(available_now=True)
    told = [event.read for event in second.events if event.step is Step.DELIVERED]
    assert [each["offsets"] for each in told if each] == [4]


def test_consumer_quota_slows_a_pipeline_down_and_loses_nothing(apache_kafka: str, scratch: Path, spark: Any) -> None:
    """F31: a throttled answer is empty at first, and says how long to wait."""
    name = f"quota-{uuid.uuid4().hex[:8]}"
    output = OUTPUTS["sqlite"](uuid.uuid4().hex[:8], apache_kafka, scratch, "")
    producer = Producer({"bootstrap.servers": apache_kafka, "batch.size": 20_000})
    with Cluster(apache_kafka) as cluster:
        create_topic(cluster, name, partitions=1)
        quota(cluster, name, "consumer_byte_rate", 150_000)
    for i in range(40):
        producer.produce(name, key=str(i), value=f"value {i}".ljust(10_000))
    assert producer.flush(30) == 0
    options = {"kafka.client.id": name, "kafka.max.partition.fetch.bytes": "100000"}
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / name), say=lambda _: None)
        .read(atonce.Kafka(name, servers=apache_kafka, options=options))
        .transform("SELECT trim(CAST(value AS STRING)) AS value FROM input")
        .write(output.sink)
    )
    pipeline.run(available_now=True)
    assert sorted(output.values()) == sorted(f"value {i}" for i in range(40))
