"""What was acknowledged is there after a restart, a SIGKILL and a full disk. S1, S22; F11, F12, F13."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from atonce.broker.embedded import Broker, find_running
from atonce.local.child import ChildFailed
from atonce.records.record import build_batch
from tests.interop.broker.wire import Wire

PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID, END_TXN = 0, 1, 3, 22, 26
# Of the last transaction, which has not quite ended.
PASSING = ("concurrent_transactions", "not_enough_replicas")


def values(servers: str, topic: str, count: int, seconds: float = 20) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += [m.value() for m in consumer.consume(1000, 0.2) if m.error() is None]
    consumer.close()
    return found


def test_topics_records_and_groups_survive_a_clean_stop_and_a_kill(scratch: Path) -> None:
    with Broker(data=scratch) as broker:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        admin.create_topics([NewTopic("kept", 1, 1, config={"retention.ms": "98765"})])["kept"].result(30)
        admin.create_topics([NewTopic("gone", 3, 1)])["gone"].result(30)
        admin.delete_topics(["gone"])["gone"].result(30)
        topic_id = _topic_id(broker.servers, "kept")
        expected: list[bytes] = []
        for stop in (broker.restart, broker.kill, broker.kill):
            producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "log_level": 0})
            for _ in range(50):
                expected.append(str(len(expected)).encode())
                producer.produce("kept", expected[-1])
            assert producer.flush(30) == 0
            consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "g", "log_level": 0})
            consumer.commit(offsets=[TopicPartition("kept", 0, len(expected))], asynchronous=False)
            consumer.close()
            stop()
            broker.start()
            assert values(broker.servers, "kept", len(expected)) == expected
            consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "g", "log_level": 0})
            assert consumer.committed([TopicPartition("kept", 0)], 30)[0].offset == len(expected)
            consumer.close()
        assert _topic_id(broker.servers, "kept") == topic_id
        admin = AdminClient({"bootstrap.servers": broker.servers})
        kept = ConfigResource(ConfigResource.Type.TOPIC, "kept")
        assert admin.describe_configs([kept])[kept].result(30)["retention.ms"].value == "98765"
        assert "gone" not in admin.list_topics(timeout=10).topics
        assert broker.stop() == 0


def _topic_id(servers: str, topic: str) -> Any:
    with Wire(servers) as wire:
        return wire.ask(METADATA, 12, topics=[{"name": topic}]).topics[0].topic_id


def test_running_broker_is_found_by_its_data_directory(scratch: Path) -> None:
    with Broker(data=scratch) as broker:
        assert find_running(scratch) == broker.servers
        broker.kill()
        assert find_running(scratch) is None
        broker.start()
        assert find_running(scratch) == broker.servers
    assert find_running(scratch) is None
    assert not (scratch / "broker.address").exists()


def test_empty_directory_is_ready_in_two_seconds(scratch: Path) -> None:
    """In seconds of processor time: the machine that runs the tests may be busy with other things."""
    with Broker(data=scratch / "empty") as broker:
        spent = psutil.Process(broker.pid).cpu_times()
        assert spent.user + spent.system < 2.0


def test_full_disk_is_answered_with_a_storage_error_and_the_partition_goes_on(scratch: Path) -> None:
    """F12: a limit on the size of the broker's files stands for the full disk; nothing is acknowledged meanwhile."""
    batch = build_batch([(None, b"x" * 10_000)], timestamp_ms=int(time.time() * 1000))
    with Broker(data=scratch) as broker, Wire(broker.servers) as wire:
        wire.ask(METADATA, 9, topics=[{"name": "t"}], allow_auto_topic_creation=True)

        def produce() -> tuple[str, int]:
            answer = wire.ask(
                PRODUCE,
                9,
                acks=-1,
                timeout=1000,
                topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": batch}]}],
            )
            one = answer.responses[0].partition_responses[0]
            return one.error_code.name, one.base_offset

        assert [produce() for _ in range(3)] == [("none", 0), ("none", 1), ("none", 2)]
        process = psutil.Process(broker.pid)
        process.rlimit(psutil.RLIMIT_FSIZE, (35_000, resource.RLIM_INFINITY))
        assert [produce() for _ in range(2)] == [("kafka_storage_error", -1)] * 2
        process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert produce() == ("none", 3)
        broker.kill()
        broker.start()
        assert values(broker.servers, "t", 4) == [b"x" * 10_000] * 4


def test_missing_partition_directory_is_refused_and_named(scratch: Path) -> None:
    """F13: acknowledged data that is not there any longer is never passed over in silence."""
    import shutil

    with Broker(data=scratch) as broker, Wire(broker.servers) as wire:
        wire.ask(METADATA, 9, topics=[{"name": "t"}], allow_auto_topic_creation=True)
    shutil.rmtree(scratch / "logs" / "t-2")
    with pytest.raises(ChildFailed, match="t-2 is missing"):
        Broker(data=scratch).start()


def test_list_of_topics_that_is_gone_is_refused(scratch: Path) -> None:
    with Broker(data=scratch):
        pass
    (scratch / "topics.json").unlink()
    with pytest.raises(ChildFailed, match=r"topics\.json is missing"):
        Broker(data=scratch).start()


def test_min_insync_replicas_counts_only_the_replicas_that_there_are(kafka_servers: str) -> None:
    """As Kafka 4: with one replica, a minimum of two means one."""
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    topic = f"isr-{time.time_ns()}"
    admin.create_topics([NewTopic(topic, 1, 1, config={"min.insync.replicas": "2"})])[topic].result(30)
    seen: list[Any] = []
    producer = Producer({"bootstrap.servers": kafka_servers, "acks": "all", "message.timeout.ms": 10_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: seen.append(error))
    producer.flush(20)
    assert seen == [None]


def test_duplicate_batch_is_answered_with_its_first_offset(kafka_servers: str) -> None:
    """S8, F3: also after an epoch's later batches, up to five."""
    topic = _led_topic(kafka_servers, "dup")
    with Wire(kafka_servers) as wire:
        given = _init_producer(wire, None)

        def produce(sequence: int) -> tuple[str, int]:
            batch = build_batch(
                [(None, b"a"), (None, b"b")],
                timestamp_ms=int(time.time() * 1000),
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                base_sequence=sequence,
            )
            data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
            answer = wire.ask(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
            one = answer.responses[0].partition_responses[0]
            return one.error_code.name, one.base_offset

        assert [produce(s) for s in (0, 2, 4)] == [("none", 0), ("none", 2), ("none", 4)]
        assert produce(2) == ("none", 2)
        assert produce(0) == ("none", 0)
        assert produce(10) == ("out_of_order_sequence_number", -1)
        assert produce(6) == ("none", 6)


def test_late_produce_after_its_transaction_leaves_nothing_hanging(kafka_servers: str) -> None:
    """F15: protocol v2. The batch of the ended transaction is refused, and the last stable offset is free."""
    topic, transactional_id = _led_topic(kafka_servers, "late"), f"late-{time.time_ns()}"
    with Wire(kafka_servers) as wire:
        given = _init_producer(wire, transactional_id)
        pid, epoch = given.producer_id, given.producer_epoch

        def produce(epoch: int, sequence: int) -> str:
            batch = build_batch(
                [(None, b"a")],
                timestamp_ms=int(time.time() * 1000),
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
            data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
            deadline = time.monotonic() + 20
            while True:
                answer = wire.ask(
                    PRODUCE, 12, transactional_id=transactional_id, acks=-1, timeout=1000, topic_data=data
                )
                code = answer.responses[0].partition_responses[0].error_code
                if code.name not in PASSING or time.monotonic() > deadline:
                    return str(code.name)

        assert produce(epoch, 0) == "none"
        ended = wire.ask(
            END_TXN, 5, transactional_id=transactional_id, producer_id=pid, producer_epoch=epoch, committed=True
        )
        assert ended.error_code.name == "none" and ended.producer_epoch == epoch + 1
        deadline = time.monotonic() + 20
        while _ends(wire, topic) != (2, 2):
            assert time.monotonic() < deadline, _ends(wire, topic)
        assert produce(epoch, 1) in ("invalid_producer_epoch", "producer_fenced", "invalid_txn_state")
        assert _ends(wire, topic) == (2, 2)
        assert produce(epoch + 1, 0) == "none"
        assert _ends(wire, topic) == (3, 2)
        last = wire.ask(
            END_TXN, 5, transactional_id=transactional_id, producer_id=pid, producer_epoch=epoch + 1, committed=False
        )
        assert last.error_code.name == "none"
        while _ends(wire, topic) != (4, 4):
            assert time.monotonic() < deadline, _ends(wire, topic)


def _led_topic(servers: str, prefix: str) -> str:
    """A new topic of one partition, once its leader answers: Apache Kafka tells of the topic a moment before."""
    topic = f"{prefix}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    deadline = time.monotonic() + 30
    with Wire(servers) as wire:
        while True:
            answer = wire.ask(2, 5, replica_id=-1, isolation_level=0, topics=asked)
            if answer.topics[0].partitions[0].error_code.name == "none":
                return topic
            assert time.monotonic() < deadline, "no leader"


def _init_producer(wire: Wire, transactional_id: str | None) -> Any:
    deadline = time.monotonic() + 30
    while True:
        # Apache Kafka makes the coordinator's topic when it is first asked for.
        wire.ask(10, 2, key=transactional_id or "none", key_type=1)
        given = wire.ask(
            INIT_PRODUCER_ID,
            5,
            transactional_id=transactional_id,
            transaction_timeout=60000,
            producer_id=-1,
            producer_epoch=-1,
        )
        if given.error_code.name == "none":
            return given
        assert time.monotonic() < deadline, given.error_code.name


def _ends(wire: Wire, topic: str) -> tuple[int, int]:
    """High watermark and last stable offset."""
    found = []
    for level in (0, 1):
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        answer = wire.ask(2, 5, replica_id=-1, isolation_level=level, topics=asked)
        found.append(answer.topics[0].partitions[0].offset)
    return found[0], found[1]


def test_fetch_session_tells_only_news(kafka_servers: str) -> None:
    topic = f"session-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka_servers})
    with Wire(kafka_servers) as wire:

        def fetch(session: int, epoch: int, partitions: list[tuple[int, int]], wait_ms: int) -> Any:
            wanted = [
                {"partition": p, "fetch_offset": offset, "partition_max_bytes": 100_000, "current_leader_epoch": -1}
                for p, offset in partitions
            ]
            return wire.ask(
                FETCH,
                11,
                replica_id=-1,
                max_wait=wait_ms,
                min_bytes=1,
                max_bytes=1_000_000,
                session_id=session,
                session_epoch=epoch,
                topics=[{"topic": topic, "partitions": wanted}] if wanted else [],
            )

        first = fetch(0, 0, [(0, 0), (1, 0), (2, 0)], 0)
        assert first.session_id > 0 and len(first.responses[0].partitions) == 3
        epoch = 1
        while fetch(first.session_id, epoch, [], 0).responses != ():  # a new leader's watermark may be news at first
            epoch += 1
            assert epoch < 1000
        producer.produce(topic, b"news", partition=1)
        assert producer.flush(30) == 0
        news = fetch(first.session_id, epoch + 1, [], 5000)
        (only,) = news.responses[0].partitions
        assert only.partition_index == 1 and only.high_watermark == 1 and only.records
        assert fetch(first.session_id, epoch + 9, [], 0).error_code.name == "invalid_fetch_session_epoch"
        assert fetch(first.session_id + 1, 1, [], 0).error_code.name == "fetch_session_id_not_found"


def test_fetch_waits_for_data_and_is_woken_by_it(kafka_servers: str) -> None:
    topic = f"wait-{time.time_ns()}"
    producer = Producer({"bootstrap.servers": kafka_servers, "linger.ms": 0})
    with Wire(kafka_servers) as wire:
        fetch = _fetch_of_an_empty_topic(wire, kafka_servers, topic)
        producer.list_topics(topic, 30)
        sent = time.monotonic()
        wire.send(FETCH, 4, max_wait=20_000, **fetch)
        producer.produce(topic, b"x")
        assert producer.flush(30) == 0
        _, answer = wire.receive(FETCH, 4)
        assert time.monotonic() - sent < 15
        assert answer.responses[0].partitions[0].high_watermark == 1


def test_fetches_of_an_idle_topic_are_all_answered_when_their_time_is_up(kafka_servers: str) -> None:
    """A timer may ring a little before the clock says so: such a fetch was once left waiting for the next append."""
    with Wire(kafka_servers) as wire:
        fetch = _fetch_of_an_empty_topic(wire, kafka_servers, f"idle-{time.time_ns()}")
        for wait_ms in range(1, 300):
            answer = wire.ask(FETCH, 4, max_wait=1 + wait_ms % 7, **fetch)
            assert answer.responses[0].partitions[0].high_watermark == 0


def _fetch_of_an_empty_topic(wire: Wire, servers: str, topic: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}]
    fetch = {
        "replica_id": -1,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "topics": [{"topic": topic, "partitions": wanted}],
    }
    ready = time.monotonic() + 20
    while wire.ask(FETCH, 4, max_wait=0, **fetch).responses[0].partitions[0].error_code.name != "none":
        assert time.monotonic() < ready, "no leader"
    return fetch
