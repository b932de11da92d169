"""A transaction that no coordinator knows is found and ended. Apache Kafka must be told to let one be made (S11)."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import crc32c
import pytest
from kafka.protocol.producer import ProduceRequest

from atonce.client.cluster import Cluster
from atonce.client.errors import LEADER_MOVED, TryAgain
from atonce.client.operate.admin import create_topic, describe_topic
from atonce.client.operate.hanging import abort_hanging, find_hanging
from atonce.client.retry import retry
from atonce.errors import UsageError
from atonce.local.servers.kafka import ApacheKafka


@pytest.fixture(scope="module")
def careless() -> Iterator[Cluster]:
    """A broker that believes any transactional batch, as brokers before 3.6 did."""
    with ApacheKafka(settings={"transaction.partition.verification.enable": "false"}) as kafka:
        with Cluster(kafka.servers) as cluster:
            yield cluster


def transactional_batch(producer_id: int) -> bytes:
    record = b"\0\0\0\x01\x02x\0"
    now = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0x10, 0, now, now, producer_id, 0, 0, 1) + bytes([len(record) * 2]) + record
    body = struct.pack(">ibI", -1, 2, crc32c.crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(body)) + body


def write(cluster: Cluster, topic: str, producer_id: int) -> None:
    kind = ProduceRequest.TopicProduceData
    data = kind.PartitionProduceData(index=0, records=transactional_batch(producer_id))
    request = ProduceRequest(
        transactional_id="forgotten",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[kind(name=topic, partition_data=[data])],
        max_version=11,  # from 12 on the broker would add the partition to the transaction itself
    )

    def ask() -> int:
        answer = cluster.call(request, node=cluster.leader(topic, 0))
        code: int = answer.responses[0].partition_responses[0].error_code
        if code in LEADER_MOVED:
            raise TryAgain("the partition was made a moment ago, and its leader does not know it yet")
        return code

    assert retry(ask, limit_ms=10_000) == 0


def test_hanging_transaction_is_found_and_aborted(careless: Cluster) -> None:
    create_topic(careless, "stuck", 1)
    write(careless, "stuck", 987_654)
    before = describe_topic(careless, "stuck")[0]
    assert (before.stable, before.latest) == (0, 1)
    (found,) = find_hanging(careless, older_than_ms=0)
    assert (found.topic, found.partition, found.start_offset, found.producer_id) == ("stuck", 0, 0, 987_654)
    assert find_hanging(careless, older_than_ms=60_000) == []
    with pytest.raises(UsageError, match=r"no open transaction that starts at offset 7 \(open: 0\)"):
        abort_hanging(careless, "stuck", 0, 7)
    abort_hanging(careless, "stuck", 0, 0)
    after = describe_topic(careless, "stuck")[0]
    assert after.stable == after.latest == 2
    assert find_hanging(careless, older_than_ms=0) == []
