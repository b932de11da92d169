"""Places that no client writes to, and no other user reads; and an end to partitions before the process is full."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator

import pytest

from atonce.broker.embedded import Broker
from atonce.records.record import build_batch
from tests.interop.broker.wire import Wire

INVALID_TOPIC_EXCEPTION, POLICY_VIOLATION = 17, 44


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"max.partitions": 12}) as made:
        yield made


@pytest.mark.parametrize("client", ["somebody", "__admin_client"])
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_only_the_coordinators_write_into_their_journals(broker: Broker, client: str, topic: str) -> None:
    """Apache Kafka lets in whoever calls himself `__admin_client`."""
    batch = build_batch([(b"garbage", b"garbage")], timestamp_ms=int(time.time() * 1000))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    with Wire(broker.servers, client) as wire:
        answer = wire.ask(0, 9, acks=-1, timeout=1000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code == INVALID_TOPIC_EXCEPTION
        (offsets,) = wire.ask(
            2, 5, replica_id=-1, topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        ).topics
        assert offsets.partitions[0].offset == 0


def test_more_partitions_than_allowed_are_refused_and_the_others_stay(broker: Broker) -> None:
    with Wire(broker.servers) as wire:
        wanted = {"ten": (10, 0), "one-too-many": (1, POLICY_VIOLATION)}
        for name, (partitions, code) in wanted.items():
            topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1}]
            (answer,) = wire.ask(19, 5, topics=topics, timeout=10_000).topics
            assert answer.error_code == code
            assert not code or "max.partitions=12" in answer.error_message
        (grown,) = wire.ask(37, 1, topics=[{"name": "ten", "count": 11, "assignments": None}], timeout=10_000).results
        assert grown.error_code == POLICY_VIOLATION
        (described,) = wire.ask(3, 9, topics=[{"name": "ten"}], allow_auto_topic_creation=False).topics
        assert len(described.partitions) == 10


def test_what_the_broker_keeps_is_nobody_elses_to_read(broker: Broker) -> None:
    with Wire(broker.servers) as wire:
        wire.ask(3, 9, topics=[{"name": "ten"}], allow_auto_topic_creation=True)
    for path in (broker.data, *broker.data.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"
