"""The sender on both brokers: order, repetition without duplicates, and what it refuses (S5a, S6a, S8, F3, F4, F17)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from atonce.client.errors import BrokerRefused, TopicMissing
from atonce.client.produce import Sender, idempotent_producer
from atonce.client.transaction import Transaction
from atonce.errors import AttemptAborted, InvariantError, UndeliverableRow, UsageError
from tests.contract.client.parts import LossyCluster, blobs, fresh_name, fresh_topic, read_values

EXPECTED = [f"v{n}" for n in range(200)]


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[LossyCluster]:
    with LossyCluster(kafka_servers) as made:
        yield made


def idempotent(cluster: LossyCluster, **options: Any) -> Sender:
    producer_id, epoch = idempotent_producer(cluster)
    return Sender(cluster, producer_id=producer_id, epoch=epoch, **options)


def test_everything_arrives_once_and_in_order_and_is_counted(cluster: LossyCluster) -> None:
    topic, sender = fresh_topic(cluster.servers), idempotent(cluster)
    for blob in blobs(range(200)):
        sender.send(topic, 0, blob)
    sent = sender.flush()[topic, 0]
    assert (sent.records, sent.batches, sent.first_offset, sent.last_offset) == (200, 20, 0, 199)
    assert read_values(cluster, topic) == EXPECTED


@pytest.mark.parametrize("after", [1, 2, 7])
def test_lost_acks_are_repeated_without_duplicates(cluster: LossyCluster, after: int) -> None:
    """F3: the broker appended, the answer was lost; with the same sequences the repetition is recognised."""
    topic, sender = fresh_topic(cluster.servers), idempotent(cluster)
    for number, blob in enumerate(blobs(range(200))):
        if number == after:
            cluster.lose_answers = 2
        sender.send(topic, 0, blob)
    assert sender.flush()[topic, 0].records == 200
    assert cluster.fired == 2
    assert read_values(cluster, topic) == EXPECTED


def test_requests_that_never_arrived_are_sent_again_in_order(cluster: LossyCluster) -> None:
    """F4, F17: several in flight, one lost, the later ones must not overtake it."""
    topic, sender = fresh_topic(cluster.servers), idempotent(cluster)
    for number, blob in enumerate(blobs(range(200))):
        cluster.lose_requests += int(number in (0, 3, 11))
        sender.send(topic, 0, blob)
    sender.flush()
    assert cluster.fired == 3
    assert read_values(cluster, topic) == EXPECTED


def test_a_lost_ack_inside_a_transaction_gives_no_duplicate(cluster: LossyCluster) -> None:
    topic = fresh_topic(cluster.servers, 2)
    transaction = Transaction(cluster, fresh_name("tx"), 60_000)
    transaction.init()
    for _ in range(2):
        sender = Sender(
            cluster,
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
        )
        for number, blob in enumerate(blobs(range(100))):
            cluster.lose_answers += int(number in (0, 5))
            sender.send(topic, number % 2, blob)
        sender.flush()
        transaction.end(commit=True)
    transaction.wait_complete()
    assert cluster.fired == 4
    found = [read_values(cluster, topic, partition) for partition in (0, 1)]
    assert [len(values) for values in found] == [100, 100]
    assert found[0][:50] == found[0][50:] == [f"v{n}" for n in range(100) if n // 10 % 2 == 0]


def test_without_retries_a_lost_request_is_lost_and_counted(cluster: LossyCluster) -> None:
    """S5a: fire and forget never duplicates."""
    topic, sender = fresh_topic(cluster.servers), Sender(cluster, acks=1, retries=False, max_in_flight=1)
    for number, blob in enumerate(blobs(range(100))):
        cluster.lose_requests += int(number == 4)
        sender.send(topic, 0, blob)
    sent = sender.flush()[topic, 0]
    assert (sent.records, sent.failed_records) == (90, 10)
    assert read_values(cluster, topic) == [f"v{n}" for n in range(100) if n // 10 != 4]


def test_acks_zero_waits_for_nothing(cluster: LossyCluster) -> None:
    topic, sender = fresh_topic(cluster.servers), Sender(cluster, acks=0, retries=False)
    for blob in blobs(range(50)):
        sender.send(topic, 0, blob)
    sent = sender.flush()[topic, 0]
    assert (sent.records, sent.first_offset) == (50, -1)


def test_plain_retries_may_duplicate_but_never_lose(cluster: LossyCluster) -> None:
    """S6a: at least once."""
    topic, sender = fresh_topic(cluster.servers), Sender(cluster)
    for number, blob in enumerate(blobs(range(100))):
        cluster.lose_answers += int(number == 5)
        sender.send(topic, 0, blob)
    sender.flush()
    found = read_values(cluster, topic)
    assert set(found) == {f"v{n}" for n in range(100)}
    assert len(found) > 100


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_the_broker_takes_every_codec(cluster: LossyCluster, compression: str) -> None:
    topic, sender = fresh_topic(cluster.servers), idempotent(cluster)
    for blob in blobs(range(200), per_blob=100, compression=compression):
        sender.send(topic, 0, blob)
    sender.flush()
    assert read_values(cluster, topic) == EXPECTED


def test_the_leash_stops_the_sender_between_two_sends(cluster: LossyCluster) -> None:
    topic, asked = fresh_topic(cluster.servers), iter([False] * 12 + [True] * 100)
    sender = idempotent(cluster, should_stop=lambda: next(asked))
    with pytest.raises(AttemptAborted, match="withdrew the right to write"):
        for blob in blobs(range(500)):
            sender.send(topic, 0, blob)
        sender.flush()
    assert 0 < len(read_values(cluster, topic)) < 500


def test_a_transaction_without_a_producer_id_sends_nothing(cluster: LossyCluster) -> None:
    with pytest.raises(InvariantError, match="without a producer id: nothing was sent"):
        Sender(cluster, transactional_id="tx")


def test_idempotence_needs_all_acks(cluster: LossyCluster) -> None:
    with pytest.raises(UsageError, match="needs acks=all"):
        Sender(cluster, producer_id=1, epoch=0, acks=1)


def test_bytes_that_are_no_batch_are_not_sent(cluster: LossyCluster) -> None:
    with pytest.raises(InvariantError, match="not one whole record batch"):
        Sender(cluster).send("t", 0, blobs(range(10))[0][:-1])


def test_the_broker_refuses_a_batch_that_says_where_it_stands(cluster: LossyCluster) -> None:
    """As one that was fetched and not taken apart: offsets are the broker's to give."""
    topic, blob = fresh_topic(cluster.servers), bytearray(next(iter(blobs(range(10)))))
    blob[7] = 1
    sender = idempotent(cluster)
    with pytest.raises(BrokerRefused, match="error 87"):
        sender.send(topic, 0, blob)
        sender.flush()
    assert read_values(cluster, topic) == []


def test_a_missing_topic_is_named(cluster: LossyCluster) -> None:
    name = fresh_name("nobody")
    with pytest.raises(TopicMissing, match=name):
        Sender(cluster).send(name, 0, blobs(range(10))[0])


def test_a_batch_beyond_the_topics_limit_is_undeliverable(cluster: LossyCluster) -> None:
    topic = fresh_topic(cluster.servers, **{"max.message.bytes": "500"})
    sender = idempotent(cluster)
    with pytest.raises(UndeliverableRow, match=r"100 records .* larger than the topic allows"):
        sender.send(topic, 0, blobs(range(100), per_blob=100)[0])
        sender.flush()
