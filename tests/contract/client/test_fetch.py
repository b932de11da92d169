"""Reading on both brokers: what other clients wrote, ranges, aborted data, loss (S11, F25, F30)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPlace

from atonce.client.errors import TopicMissing, TryAgain
from atonce.client.offsets import TopicPartition
from atonce.client.produce import Sender
from atonce.client.read.fetch import ASKED_AHEAD, SCHEMA, SCHEMA_WITH_HEADERS, fetch, fetch_all
from atonce.client.read.sample import bytes_per_offset
from atonce.client.transaction import Transaction
from atonce.client.wire import Wire
from atonce.errors import DataLossError
from tests.contract.client.parts import LossyCluster, admin, blobs, fresh_name, fresh_topic, read_values


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[LossyCluster]:
    with LossyCluster(kafka_servers) as made:
        yield made


def fill(cluster: LossyCluster, topic: str, count: int) -> None:
    sender = Sender(cluster)
    for blob in blobs(range(count)):
        sender.send(topic, 0, blob)
    sender.flush()
    sender.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_wrote_is_read_whole(cluster: LossyCluster, codec: str) -> None:
    topic = fresh_topic(cluster.servers)
    producer = Producer({"bootstrap.servers": cluster.servers, "compression.type": codec, "linger.ms": 5})
    expected, now_ms = [], time.time_ns() // 1_000_000
    for n in range(300):
        key, value = (None if n % 3 == 0 else f"k{n}".encode()), (None if n % 7 == 0 else b"x" * n)
        headers = [("a", b"1"), ("b", None)] if n % 2 else []
        producer.produce(topic, value, key, partition=0, headers=headers, timestamp=now_ms + n)
        expected.append((n, key, value, [{"key": k, "value": v} for k, v in headers]))
    producer.flush()
    batches = list(fetch(cluster, topic, 0, 0, 300, headers=True))
    assert all(batch.schema.equals(SCHEMA_WITH_HEADERS) for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(r["offset"], r["key"], r["value"], r["headers"]) for r in rows] == expected
    assert {(r["topic"], r["partition"], r["timestampType"]) for r in rows} == {(topic, 0, 0)}
    assert round(rows[5]["timestamp"].timestamp() * 1000) == now_ms + 5


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_we_write_is_read_by_librdkafka(cluster: LossyCluster, compression: str) -> None:
    topic = fresh_topic(cluster.servers)
    sender = Sender(cluster)
    for blob in blobs(range(100), per_blob=50, compression=compression):
        sender.send(topic, 0, blob)
    sender.flush()
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": fresh_name("g"), "check.crcs": True})
    consumer.assign([ConfluentPlace(topic, 0, 0)])
    found = []
    while len(found) < 100:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        found.append((message.key(), message.value()))
    consumer.close()
    assert found == [(f"k{n}".encode(), f"v{n}".encode()) for n in range(100)]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (37, 38), (95, 100), (0, 1), (50, 50), (10, 91)])
def test_a_range_is_given_exactly_over_many_small_fetches(cluster: LossyCluster, start: int, end: int) -> None:
    topic = fresh_topic(cluster.servers)
    fill(cluster, topic, 100)
    batches = list(fetch(cluster, topic, 0, start, end, max_bytes=300))
    assert all(batch.schema.equals(SCHEMA) for batch in batches)
    assert [o for batch in batches for o in batch.column("offset").to_pylist()] == list(range(start, end))


def test_aborted_and_control_records_are_dropped(cluster: LossyCluster) -> None:
    topic = fresh_topic(cluster.servers)
    transaction = Transaction(cluster, fresh_name("tx"), 60_000)
    transaction.init()
    for number in range(4):
        sender = Sender(
            cluster,
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
        )
        for blob in blobs(range(number * 100, number * 100 + 20)):
            sender.send(topic, 0, blob)
        sender.flush()
        sender.close()
        transaction.end(commit=number % 2 == 1)
    transaction.wait_complete()
    visible = [f"v{n}" for n in (*range(100, 120), *range(300, 320))]
    assert read_values(cluster, topic) == visible
    assert len(read_values(cluster, topic, isolation="read_uncommitted")) == 80
    # a fetch that begins in the middle of an aborted transaction
    found = [v for b in fetch(cluster, topic, 0, 10, 63) for v in b.column("value").to_pylist()]
    assert [v.decode() for v in found] == [f"v{n}" for n in range(100, 120)]


def test_a_lost_connection_is_no_gap(cluster: LossyCluster) -> None:
    """F24: the leader is asked again from where we were."""
    topic = fresh_topic(cluster.servers)
    fill(cluster, topic, 200)
    found: list[int] = []
    for number, batch in enumerate(fetch(cluster, topic, 0, 0, 200, max_bytes=500)):
        cluster.lose_answers += int(number in (1, 4))
        cluster.lose_requests += int(number in (5, 7))
        found += batch.column("offset").to_pylist()
    assert cluster.fired == 4
    assert found == list(range(200))


def test_removed_records_are_data_loss_and_named(cluster: LossyCluster) -> None:
    """F30."""
    topic = fresh_topic(cluster.servers)
    fill(cluster, topic, 100)
    next(iter(admin(cluster.servers).delete_records([ConfluentPlace(topic, 0, 60)]).values())).result(20)
    with pytest.raises(DataLossError, match=rf"{topic}/0: offsets 10 to 59 are wanted, but only 60 to 99 are there"):
        list(fetch(cluster, topic, 0, 10, 100))
    found = [
        o for b in fetch(cluster, topic, 0, 10, 90, fail_on_data_loss=False) for o in b.column("offset").to_pylist()
    ]
    assert found == list(range(60, 90))
    assert list(fetch(cluster, topic, 0, 10, 50, fail_on_data_loss=False)) == []


def test_an_end_that_never_comes_is_said_and_not_waited_for_forever(cluster: LossyCluster) -> None:
    topic = fresh_topic(cluster.servers)
    fill(cluster, topic, 10)
    with pytest.raises(TryAgain, match=r"nothing to read at offset 10 .* although the batch ends at 99"):
        list(fetch(cluster, topic, 0, 0, 99, timeout_ms=700))


def test_a_missing_topic_is_named(cluster: LossyCluster) -> None:
    name = fresh_name("nobody")
    with pytest.raises(TopicMissing, match=name):
        list(fetch(cluster, name, 0, 0, 1))


def test_a_sample_tells_the_size_of_records(cluster: LossyCluster) -> None:
    topic = fresh_topic(cluster.servers)
    assert bytes_per_offset(cluster, TopicPartition(topic, 0), 0, "read_committed") is None
    fill(cluster, topic, 1000)
    size = bytes_per_offset(cluster, TopicPartition(topic, 0), 100, "read_committed")
    assert size is not None and 10 < size < 60


def test_many_ranges_are_read_in_order_over_few_connections(
    cluster: LossyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = 3 * ASKED_AHEAD
    topic = fresh_topic(cluster.servers, partitions)
    producer = Producer({"bootstrap.servers": cluster.servers})
    for n in range(10 * partitions):
        producer.produce(topic, f"v{n}", partition=n % partitions)
    producer.flush()
    used: set[int] = set()
    most, lend, take_back = 0, cluster.wire, cluster.release

    def wire(node: int) -> Wire:
        nonlocal most
        lent = lend(node)
        used.add(id(lent))
        most = max(most, len(used))
        return lent

    def release(lent: Wire) -> None:
        used.discard(id(lent))
        take_back(lent)

    monkeypatch.setattr(cluster, "wire", wire)
    monkeypatch.setattr(cluster, "release", release)
    ranges = [(topic, partition, 2, 8) for partition in range(partitions)]
    found = [v.decode() for b in fetch_all(cluster, ranges) for v in b.column("value").to_pylist()]
    assert found == [f"v{p + n * partitions}" for p in range(partitions) for n in range(2, 8)]
    assert (most, used) == (ASKED_AHEAD, set())
