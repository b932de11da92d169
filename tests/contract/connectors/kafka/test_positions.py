"""Where a topic's reader begins by time, and how much of it waits."""

from __future__ import annotations

import uuid

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery.moving.rewind import target_positions, time_named
from atonce.errors import UsageError
from tests.contract.pipeline.parts import produce


def filled(servers: str, count: int) -> str:
    topic = f"positions-{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=2)
    produce(servers, topic, range(count), partitions=2)
    return topic


def test_a_reset_goes_to_a_time(embedded: str) -> None:
    topic = filled(embedded, 10)
    source = KafkaSource(Kafka(topic, servers=embedded))
    assert target_positions(source, "1999-12-31T23:59:59+01:00") == {f"{topic}/0": 0, f"{topic}/1": 0}
    assert target_positions(source, "2999-01-01T00:00:00Z") == {f"{topic}/0": 5, f"{topic}/1": 5}
    assert time_named("1970-01-02T00:00:00Z") == 86_400_000 and time_named("orders/0=5") is None
    with pytest.raises(UsageError, match="names no time zone"):
        target_positions(source, "2026-01-31T12:00:00")
    with pytest.raises(UsageError, match="is not a time"):
        target_positions(source, "2026-13-31")


def test_lag_is_right_before_anything_was_committed(embedded: str) -> None:
    topic = filled(embedded, 10)
    for start, waiting in (("earliest", 10), ("latest", 0)):
        source = KafkaSource(Kafka(topic, servers=embedded, start=start))
        with source.lag() as lag:
            assert lag(source.first_positions() or {}) == waiting
