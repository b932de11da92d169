"""Kafka Streams exactly_once_v2 on both brokers: killed in the middle, every key is still counted once (S22)."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from bench.peers import java_command
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from atonce.local.child import Child
from atonce.local.servers.pins import KAFKA, STREAMS

HERE = Path(__file__).parent
KEYS, RECORDS = 10, 2_000


def read_counts(servers: str, topic: str, total: int, child: Child) -> list[tuple[str, int]]:
    """Committed output in order, until it holds `total` updates."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"check-{topic}",
            "isolation.level": "read_committed",
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[str, int]] = []
    deadline = time.monotonic() + 60
    while len(seen) < total and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append((message.key().decode(), int(message.value())))
        assert child.running, "the application ended by itself"
    consumer.close()
    return seen


@pytest.fixture(params=["embedded", pytest.param("apache_kafka", marks=pytest.mark.soak)])
def servers(request: pytest.FixtureRequest) -> str:
    """Apache Kafka is the control here: that Streams works on it is known, so it is checked in the long run only."""
    found: str = request.getfixturevalue(request.param)
    return found


def test_streams_application_killed_midway_counts_each_record_once(servers: str, scratch: Path) -> None:
    """SIGKILL after some output, start again: each key's counts are 1, 2, 3 … without a gap or a repetition."""
    name = f"streams-{uuid.uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, num_partitions=1) for topic in (source, target)]).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 2})
    for number in range(RECORDS):
        producer.produce(source, key=f"k{number % KEYS}", value=b"x")
    assert producer.flush(30) == 0

    command = [*java_command(HERE / "StreamsCount.java", KAFKA, STREAMS), servers, source, target, name]
    with Child([*command, str(scratch / "state-1")], log=scratch / "first.log") as first:
        partly = read_counts(servers, target, 100, first)
        first.kill()
    assert len(partly) >= 100, (scratch / "first.log").read_text()[-2000:]
    # Another state directory: what it knows must come back from the changelog topic alone.
    with Child([*command, str(scratch / "state-2")], log=scratch / "second.log") as second:
        everything = read_counts(servers, target, RECORDS, second)
        second.kill()
    for key in {key for key, _ in everything}:
        counts = [count for each, count in everything if each == key]
        assert counts == list(range(1, RECORDS // KEYS + 1)), f"{key}: {counts[:20]} …"
    assert len({key for key, _ in everything}) == KEYS
