"""A `timestamp` column becomes the records' own time, on every way from rows to Kafka and at every level."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import UndeliverableRow

TIMES_MS = tuple(int(time.time()) * 1000 - ago for ago in (3_600_123, 86_400_456, 60_789))
"""In no order, and young enough for the topic's retention."""
SEND_ON = "SELECT key, value, timestamp FROM input"


def send_on(batch: Any) -> Any:
    return batch.select(["key", "value", "timestamp"])


def timed(servers: str, topic: str) -> list[tuple[bytes, int, int]]:
    """Everything in a topic as (value, type of its timestamp, timestamp), by another client."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody", "isolation.level": "read_committed"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, low)])
    found = []
    while len(found) < len(TIMES_MS):
        message = consumer.poll(30)
        assert message is not None, f"{topic} gave nothing for 30 s, of {high}"
        found.append((message.value(), *message.timestamp()))
    consumer.close()
    return sorted(found)


@pytest.fixture
def topic(kafka_servers: str) -> str:
    """A topic whose records have times of their own."""
    from confluent_kafka import Producer

    name = f"times-{uuid.uuid4().hex[:8]}"
    with Cluster(kafka_servers) as cluster:
        for each in (name, f"{name}-out"):
            create_topic(cluster, each, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_servers})
    for number, time_ms in enumerate(TIMES_MS):
        producer.produce(name, key=b"k", value=b"%d" % number, timestamp=time_ms, partition=0)
    assert producer.flush(30) == 0
    return name


def pipeline(servers: str, topic: str, scratch: Path, level: str = "effectively-once", **more: Any) -> atonce.Pipeline:
    made = atonce.Pipeline(topic, guarantee=level, checkpoint=str(scratch / topic), **more)
    return made.read(atonce.Kafka(topic, servers=servers)).write(atonce.Kafka(f"{topic}-out", servers=servers))


@pytest.mark.parametrize("way", ["on columns", "in the JVM", "map_arrow"])
def test_a_timestamp_column_is_the_time_of_the_record(
    kafka_servers: str, topic: str, scratch: Path, spark: Any, way: str
) -> None:
    settings = {"spark.atonce.columns": "false"} if way == "in the JVM" else {}
    made = pipeline(kafka_servers, topic, scratch, spark=settings)
    if way == "map_arrow":
        made = made.map_arrow(send_on, "key binary, value binary, timestamp timestamp")
    else:
        made = made.transform(SEND_ON)
    made.run(available_now=True)
    assert timed(kafka_servers, f"{topic}-out") == [(b"%d" % i, 1, at) for i, at in enumerate(TIMES_MS)]


@pytest.mark.parametrize("kafka_servers", ["embedded"], indirect=True)
@pytest.mark.parametrize("level", ["none", "at-most-once", "at-least-once"])
def test_the_timestamp_is_carried_at_every_level(
    kafka_servers: str, topic: str, scratch: Path, spark: Any, level: str
) -> None:
    pipeline(kafka_servers, topic, scratch, level).transform(SEND_ON).run(available_now=True)
    assert [at for _, _, at in timed(kafka_servers, f"{topic}-out")] == list(TIMES_MS)


def test_a_timestamp_that_the_topic_does_not_allow_stops_with_the_row_and_the_setting(
    kafka_servers: str, topic: str, scratch: Path, spark: Any
) -> None:
    """Brokers take no more than an hour ahead by default, and would refuse the whole batch in their own words."""
    ahead = "SELECT key, value, current_timestamp() + INTERVAL 2 HOURS AS timestamp FROM input"
    with pytest.raises(UndeliverableRow, match=r"message\.timestamp\.after\.max\.ms=3600000"):
        pipeline(kafka_servers, topic, scratch).transform(ahead).run(available_now=True)
