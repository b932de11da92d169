"""Ordinary clients, unmodified, on the embedded broker and on Apache Kafka, with the same assertions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.interop.broker.wire import Wire

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def read(servers: str, topic: str, count: int, *, seconds: float = 30, **config: Any) -> list[Any]:
    """The first `count` messages of a topic; fewer if they do not come in time."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name("g"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )
    found: list[Any] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found.append(message)
    finally:
        consumer.close()
    return found


def make_topic(servers: str, partitions: int = 1, **config: str) -> str:
    topic = name()
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
    return topic


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_writes_and_reads_back_under_every_codec(kafka_servers: str, codec: str) -> None:
    """S1: durable, in order, headers and timestamps kept."""
    topic = make_topic(kafka_servers)
    producer = Producer({"bootstrap.servers": kafka_servers, "compression.type": codec, "linger.ms": 20})
    for i in range(500):
        producer.produce(
            topic, key=f"k{i}", value=f"value {i} " * 10, timestamp=1_700_000_000_000 + i, headers={"h": str(i)}
        )
    assert producer.flush(30) == 0
    found = read(kafka_servers, topic, 500)
    assert [message.offset() for message in found] == list(range(500))
    assert [message.key() for message in found] == [f"k{i}".encode() for i in range(500)]
    assert found[7].headers() == [("h", b"7")]
    assert found[7].timestamp()[1] == 1_700_000_000_007


# The libraries that kafka-python would need for the other codecs are not among our dependencies.
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafka_python_writes_and_reads_back(kafka_servers: str, codec: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic = make_topic(kafka_servers)
    producer = KafkaProducer(bootstrap_servers=kafka_servers, compression_type=None if codec == "none" else codec)
    for i in range(100):
        producer.send(topic, key=f"k{i}".encode(), value=b"x" * 100)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=kafka_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found: list[Any] = []
    for record in consumer:
        found.append(record)
        if len(found) == 100:
            break
    consumer.close()
    assert [record.key for record in found] == [f"k{i}".encode() for i in range(100)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_delivers(kafka_servers: str, acks: str) -> None:
    topic = make_topic(kafka_servers)
    producer = Producer({"bootstrap.servers": kafka_servers, "acks": acks, "enable.idempotence": False})
    for i in range(200):
        producer.produce(topic, value=str(i))
    assert producer.flush(30) == 0
    assert [m.value() for m in read(kafka_servers, topic, 200)] == [str(i).encode() for i in range(200)]


def test_topic_is_created_when_a_producer_asks_for_it(embedded: str) -> None:
    """The Apache Kafka of the tests is told not to."""
    topic = name()
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": embedded})
    producer.produce(topic, value=b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def test_idempotent_producer_delivers_in_order(kafka_servers: str) -> None:
    """S8."""
    topic = make_topic(kafka_servers)
    producer = Producer({"bootstrap.servers": kafka_servers, "enable.idempotence": True, "batch.num.messages": 7})
    for i in range(1000):
        producer.produce(topic, value=str(i))
    assert producer.flush(30) == 0
    assert [int(m.value()) for m in read(kafka_servers, topic, 1000)] == list(range(1000))


def _transactional(servers: str, transactional_id: str | None = None, **config: Any) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id or name("tx"), **config})
    producer.init_transactions(30)
    return producer


def test_read_committed_sees_commits_only_and_read_uncommitted_sees_aborts_too(kafka_servers: str) -> None:
    """S11, F25."""
    topic = make_topic(kafka_servers)
    producer = _transactional(kafka_servers)
    for number in range(6):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, value=f"{number}-{i}")
        assert producer.flush(30) == 0  # an abort drops what was not sent yet
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    committed = [f"{n}-{i}".encode() for n in (0, 2, 4) for i in range(5)]
    assert [m.value() for m in read(kafka_servers, topic, 15, **{"isolation.level": "read_committed"})] == committed
    seen = {m.value() for m in read(kafka_servers, topic, 16, **{"isolation.level": "read_uncommitted"})}
    assert set(committed) < seen


def test_open_transaction_holds_back_the_last_stable_offset(kafka_servers: str) -> None:
    """F26: nothing after it is seen before it ends."""
    topic = make_topic(kafka_servers)
    plain = Producer({"bootstrap.servers": kafka_servers})
    producer = _transactional(kafka_servers)
    producer.begin_transaction()
    producer.produce(topic, value=b"open")
    assert producer.flush(30) == 0
    plain.produce(topic, value=b"plain")
    assert plain.flush(30) == 0
    assert read(kafka_servers, topic, 1, seconds=1.5, **{"isolation.level": "read_committed"}) == []
    producer.commit_transaction(30)
    found = read(kafka_servers, topic, 2, **{"isolation.level": "read_committed"})
    assert [m.value() for m in found] == [b"open", b"plain"]


def test_zombie_is_fenced_by_the_next_of_its_transactional_id(kafka_servers: str) -> None:
    """S9, F16."""
    topic = make_topic(kafka_servers)
    transactional_id = name("tx")
    old = _transactional(kafka_servers, transactional_id)
    old.begin_transaction()
    old.produce(topic, value=b"zombie")
    assert old.flush(30) == 0
    new = _transactional(kafka_servers, transactional_id)
    new.begin_transaction()
    new.produce(topic, value=b"alive")
    new.commit_transaction(30)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(30)
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    found = read(kafka_servers, topic, 1, **{"isolation.level": "read_committed"})
    assert [m.value() for m in found] == [b"alive"]


def test_offsets_go_with_the_transaction(kafka_servers: str) -> None:
    """S12: consumed and produced together, or not at all."""
    source, sink, group = make_topic(kafka_servers), make_topic(kafka_servers), name("g")
    plain = Producer({"bootstrap.servers": kafka_servers})
    for i in range(10):
        plain.produce(source, value=str(i))
    assert plain.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = _transactional(kafka_servers)
    try:
        batch: list[Any] = []
        deadline = time.monotonic() + 30
        while len(batch) < 10 and time.monotonic() < deadline:
            batch += consumer.consume(10 - len(batch), 0.5)
        where = [TopicPartition(source, 0)]
        for commit in (False, True):
            producer.begin_transaction()
            for message in batch:
                producer.produce(sink, value=message.value())
            producer.send_offsets_to_transaction(
                consumer.position([TopicPartition(source, 0)]), consumer.consumer_group_metadata(), 30
            )
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
                assert consumer.committed(where, 30)[0].offset < 0
        assert consumer.committed(where, 30)[0].offset == 10
    finally:
        consumer.close()
    found = read(kafka_servers, sink, 10, **{"isolation.level": "read_committed"})
    assert [m.value() for m in found] == [str(i).encode() for i in range(10)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_shares_the_partitions_and_takes_over_from_a_member_that_leaves(
    kafka_servers: str, protocol: str
) -> None:
    """S2: a partition belongs to one member at a time."""
    topic, group = make_topic(kafka_servers, 4), name("g")
    config = {
        "bootstrap.servers": kafka_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
    }
    one, two = Consumer(config), Consumer(config)
    try:
        one.subscribe([topic])
        two.subscribe([topic])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            one.poll(0.1)
            two.poll(0.1)
            mine, theirs = ({(p.topic, p.partition) for p in c.assignment()} for c in (one, two))
            if mine and theirs and len(mine | theirs) == 4 and not mine & theirs:
                break
        else:
            pytest.fail(f"not shared: {mine}, {theirs}")
        two.close()
        while len(one.assignment()) < 4 and time.monotonic() < deadline:
            one.poll(0.1)
        assert len(one.assignment()) == 4
    finally:
        one.close()


def test_committed_offsets_are_where_the_next_member_starts(kafka_servers: str) -> None:
    """S3."""
    topic, group = make_topic(kafka_servers), name("g")
    producer = Producer({"bootstrap.servers": kafka_servers})
    for i in range(20):
        producer.produce(topic, value=str(i))
    assert producer.flush(30) == 0
    config = {
        "bootstrap.servers": kafka_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    first = Consumer(config)
    first.subscribe([topic])
    seen: list[Any] = []
    while len(seen) < 12:
        seen += first.consume(12 - len(seen), 1)
    first.commit(offsets=[TopicPartition(topic, 0, 12)], asynchronous=False)
    first.close()
    second = Consumer(config)
    second.subscribe([topic])
    rest: list[Any] = []
    deadline = time.monotonic() + 30
    while len(rest) < 8 and time.monotonic() < deadline:
        rest += second.consume(8 - len(rest), 0.5)
    second.close()
    assert [int(m.value()) for m in rest] == list(range(12, 20))


@pytest.fixture
def admin(kafka_servers: str) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": kafka_servers})


def _refused(future: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(30)
    return int(caught.value.args[0].code())


def test_admin_creates_grows_describes_and_deletes_topics(kafka_servers: str, admin: AdminClient) -> None:
    topic = make_topic(kafka_servers, 2)
    assert _refused(admin.create_topics([NewTopic(topic, 1, 1)])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    deadline = time.monotonic() + 20
    while len(admin.list_topics(topic, 10).topics[topic].partitions) != 5 and time.monotonic() < deadline:
        pass
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 5
    assert _refused(admin.create_partitions([NewPartitions(topic, 3)])[topic]) == KafkaError.INVALID_PARTITIONS
    admin.delete_topics([topic])[topic].result(30)
    while topic in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
        pass
    assert topic not in admin.list_topics(timeout=10).topics
    assert _refused(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (NewTopic("../escape", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("a" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("replicated", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("misconfigured", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("unknown-setting", 1, 1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused_with_kafkas_codes(admin: AdminClient, bad: NewTopic, code: int) -> None:
    assert _refused(admin.create_topics([bad])[bad.topic]) == code


def test_names_that_differ_in_dot_and_underscore_collide(kafka_servers: str, admin: AdminClient) -> None:
    base = uuid.uuid4().hex[:8]
    admin.create_topics([NewTopic(f"{base}.x", 1, 1)])[f"{base}.x"].result(30)
    assert _refused(admin.create_topics([NewTopic(f"{base}_x", 1, 1)])[f"{base}_x"]) == KafkaError.TOPIC_EXCEPTION


def test_topic_settings_are_described_and_altered(kafka_servers: str, admin: AdminClient) -> None:
    topic = make_topic(kafka_servers, **{"retention.ms": "123456"})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(30)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("123456", 1)
    assert found["max.message.bytes"].value == "1048588"
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(30)
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["max.message.bytes"].value == "2000"
    assert found["retention.ms"].value == "604800000"
    producer = Producer({"bootstrap.servers": kafka_servers})
    errors: list[Any] = []
    producer.produce(topic, value=b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_records_can_be_deleted_up_to_an_offset(kafka_servers: str, admin: AdminClient) -> None:
    topic = make_topic(kafka_servers)
    producer = Producer({"bootstrap.servers": kafka_servers})
    for i in range(10):
        producer.produce(topic, value=str(i))
    assert producer.flush(30) == 0
    where = TopicPartition(topic, 0, 4)
    assert admin.delete_records([where])[where].result(30).low_watermark == 4
    assert [int(m.value()) for m in read(kafka_servers, topic, 6)] == list(range(4, 10))
    beyond = TopicPartition(topic, 0, 99)
    assert _refused(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_found_by_time(kafka_servers: str) -> None:
    topic = make_topic(kafka_servers)
    producer = Producer({"bootstrap.servers": kafka_servers})
    for i in range(100):
        producer.produce(topic, value=str(i), timestamp=1_700_000_000_000 + 10 * i)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka_servers, "group.id": name("g")})
    try:

        def at(timestamp: int) -> int:
            return int(consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], 30)[0].offset)

        assert at(1_700_000_000_000) == 0
        assert at(1_700_000_000_495) == 50
        assert at(1_700_000_000_990) == 99
        assert at(1_700_000_001_000) in (-1, 100)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 100)
    finally:
        consumer.close()


def test_groups_are_listed_described_and_deleted(kafka_servers: str, admin: AdminClient) -> None:
    topic, group = make_topic(kafka_servers), name("g")
    producer = Producer({"bootstrap.servers": kafka_servers})
    producer.produce(topic, value=b"x")
    assert producer.flush(30) == 0
    assert len(read(kafka_servers, topic, 1, **{"group.id": group, "enable.auto.commit": True})) == 1
    listed = {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    assert group in listed
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert described.group_id == group and not described.members
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {one.group_id for one in admin.list_consumer_groups().result(30).valid}


def test_acl_requests_say_that_there_is_no_authorizer(kafka_servers: str) -> None:
    """Asked by hand: librdkafka keeps this error to itself."""
    entry = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
    with Wire(kafka_servers) as wire:
        any_acl = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        described = wire.ask(29, 3, **any_acl)
        created = wire.ask(30, 3, creations=[{**entry, "resource_pattern_type": 3, "permission_type": 3}])
        deleted = wire.ask(31, 3, filters=[any_acl])
    codes = [described.error_code, created.results[0].error_code, deleted.filter_results[0].error_code]
    assert [code.name for code in codes] == ["security_disabled"] * 3


def test_cluster_is_described(admin: AdminClient) -> None:
    found = admin.describe_cluster().result(30)
    assert len(found.nodes) == 1 and found.cluster_id and found.controller is not None


def test_our_apis_have_the_versions_that_apache_kafka_has(apache_kafka: str, embedded: str) -> None:
    found = []
    for servers in (apache_kafka, embedded):
        with Wire(servers) as wire:
            answer = wire.ask(18, 4, client_software_name="t", client_software_version="1")
            apis = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
            levels = {one.name: one.max_version_level for one in answer.finalized_features}
            found.append((apis, levels))
    (their_apis, their_levels), (our_apis, our_levels) = found
    assert {key: their_apis.get(key) for key in our_apis} == our_apis
    assert {name: their_levels.get(name) for name in our_levels} == our_levels
