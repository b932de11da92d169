"""librdkafka's transactional producer and read_committed consumer, unmodified, on both brokers (S9 to S12)."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.coordinator_calls import eventually, fresh


@pytest.fixture
def topics(kafka_servers: str) -> tuple[str, str]:
    names = fresh("in"), fresh("out")
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(20)
    return names


def producer(servers: str, transactional_id: str | None = None) -> Producer:
    settings: dict[str, object] = {"bootstrap.servers": servers, "enable.idempotence": True}
    if transactional_id is not None:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 30_000}
    made = Producer(settings)
    if transactional_id is not None:
        made.init_transactions(30)
    return made


def consumer(servers: str, group: str, *, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )


def values(reader: Consumer, count: int, timeout_s: float = 20.0) -> list[bytes]:
    """The next `count` values, or fewer when the time is over."""
    found: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        for message in reader.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


def read_all(servers: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    reader = consumer(servers, fresh("reader"), isolation=isolation)
    reader.subscribe([topic])
    try:
        found = values(reader, count)
        return found + values(reader, 1, 0.5)
    finally:
        reader.close()


def test_committed_records_are_read_and_aborted_ones_only_uncommitted(
    kafka_servers: str, topics: tuple[str, str]
) -> None:
    """S11, F25."""
    _, out = topics
    writer = producer(kafka_servers, fresh("txn"))
    writer.begin_transaction()
    for number in range(10):
        writer.produce(out, b"good%d" % number)
    writer.commit_transaction(30)
    writer.begin_transaction()
    for number in range(10):
        writer.produce(out, b"bad%d" % number)
    writer.flush(20)
    writer.abort_transaction(30)
    good = {b"good%d" % n for n in range(10)}
    assert set(read_all(kafka_servers, out, 10)) == good
    assert set(read_all(kafka_servers, out, 20, "read_uncommitted")) == good | {b"bad%d" % n for n in range(10)}


def test_consume_transform_produce_moves_offsets_with_the_output(kafka_servers: str, topics: tuple[str, str]) -> None:
    """S12: an aborted round is as if it had never been."""
    source, out = topics
    feeder = producer(kafka_servers)
    for number in range(100):
        feeder.produce(source, b"%d" % number, partition=number % 2)
    assert feeder.flush(20) == 0
    group, transactional_id = fresh("group"), fresh("txn")
    for attempt in range(4):
        reader = consumer(kafka_servers, group)
        reader.subscribe([source])
        writer = producer(kafka_servers, transactional_id)
        batch: list[Message] = []
        deadline = time.monotonic() + 20
        while len(batch) < 30 and time.monotonic() < deadline:
            batch += reader.consume(30 - len(batch), 0.2)
            if not batch and attempt == 3:
                break
        writer.begin_transaction()
        for message in batch:
            writer.produce(out, message.value())
        writer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), 20)
        if attempt % 2:
            writer.flush(20)
            writer.abort_transaction(30)
        else:
            writer.commit_transaction(30)
        reader.close()
    left = 100 - 60
    reader = consumer(kafka_servers, group)
    reader.subscribe([source])
    rest = values(reader, left)
    reader.close()
    delivered = read_all(kafka_servers, out, 60)
    assert sorted(delivered + rest, key=int) == [b"%d" % n for n in range(100)]
    assert len(delivered) == 60


def test_second_producer_with_the_same_id_fences_the_first(kafka_servers: str, topics: tuple[str, str]) -> None:
    """F16."""
    _, out = topics
    transactional_id = fresh("txn")
    first = producer(kafka_servers, transactional_id)
    first.begin_transaction()
    first.produce(out, b"zombie")
    first.flush(20)
    second = producer(kafka_servers, transactional_id)
    second.begin_transaction()
    second.produce(out, b"alive")
    second.commit_transaction(30)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert read_all(kafka_servers, out, 1) == [b"alive"]


def test_open_transaction_holds_back_the_last_stable_offset_until_it_ends(
    kafka_servers: str, topics: tuple[str, str]
) -> None:
    """F26."""
    _, out = topics
    slow = producer(kafka_servers, fresh("txn"))
    slow.begin_transaction()
    slow.produce(out, b"slow", partition=0)
    assert slow.flush(20) == 0
    quick = producer(kafka_servers)
    quick.produce(out, b"quick", partition=0)
    assert quick.flush(20) == 0
    reader = consumer(kafka_servers, fresh("reader"))
    reader.assign([TopicPartition(out, 0, 0)])
    assert values(reader, 1, 1.0) == []
    slow.abort_transaction(30)
    assert values(reader, 1) == [b"quick"]
    reader.close()


def test_committed_offsets_of_a_transaction_are_seen_by_the_next_member(
    kafka_servers: str, topics: tuple[str, str]
) -> None:
    source, out = topics
    group = fresh("group")
    writer = producer(kafka_servers, fresh("txn"))
    reader = consumer(kafka_servers, group)
    reader.subscribe([source])
    eventually(lambda: (reader.poll(0.1), reader.assignment())[1], bool)
    writer.begin_transaction()
    writer.produce(out, b"x")
    writer.send_offsets_to_transaction(
        [TopicPartition(source, 0, 17), TopicPartition(source, 1, 4)], reader.consumer_group_metadata(), 20
    )
    writer.commit_transaction(30)
    committed = reader.committed([TopicPartition(source, 0), TopicPartition(source, 1)], 20)
    reader.close()
    assert [p.offset for p in committed] == [17, 4]
