"""Kafka's own Java clients and tools, unmodified, on the embedded broker."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from atonce.broker.embedded import Broker
from atonce.local.child import Child
from atonce.local.java import find_java
from atonce.local.servers.jars import classpath
from atonce.local.servers.pins import KAFKA, STREAMS, TOOLS

SMALL = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def tool(main: str, *words: str, given: str = "", seconds: float = 60) -> str:
    """Standard output of one of Kafka's tools; fails with what it said if it fails."""
    command = [find_java().command, *SMALL, "-cp", classpath(KAFKA, TOOLS), main, *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{main}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
    return done.stdout


def test_kafkas_console_tools_work(embedded: str) -> None:
    """Topics, console producer and consumer, groups, offsets, configs, transactions."""
    topic, at = f"java-{uuid.uuid4().hex[:8]}", ["--bootstrap-server", embedded]
    tool("org.apache.kafka.tools.TopicCommand", *at, "--create", "--topic", topic, "--partitions", "2")
    described = tool("org.apache.kafka.tools.TopicCommand", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described and "ReplicationFactor: 1" in described and "Isr: 1" in described
    tool("org.apache.kafka.tools.ConsoleProducer", *at, "--topic", topic, given="one\ntwo\nthree\n")
    read = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *at,
        *("--topic", topic, "--from-beginning", "--max-messages", "3", "--group", "java-group"),
        *("--isolation-level", "read_committed", "--timeout-ms", "20000"),
    )
    assert sorted(read.split()) == ["one", "three", "two"]
    groups = tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", "java-group"
    )
    assert topic in groups
    offsets = tool("org.apache.kafka.tools.GetOffsetShell", *at, "--topic", topic)
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split()) == 3


@pytest.mark.soak
def test_kafkas_transaction_and_config_tools_work(embedded: str) -> None:
    topic, at = f"java-{uuid.uuid4().hex[:8]}", ["--bootstrap-server", embedded]
    tool("org.apache.kafka.tools.TopicCommand", *at, "--create", "--topic", topic, "--partitions", "1")
    producer = Producer({"bootstrap.servers": embedded, "transactional.id": f"tool-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"x")
    assert producer.flush(30) == 0
    main = "org.apache.kafka.tools.TransactionsCommand"
    listed = tool(main, *at, "list")
    assert f"tool-{topic}" in listed and "Ongoing" in listed
    assert "Ongoing" in tool(main, *at, "describe", "--transactional-id", f"tool-{topic}")
    producers = tool(main, *at, "describe-producers", "--topic", topic, "--partition", "0")
    assert len(producers.strip().splitlines()) == 2
    producer.commit_transaction(30)
    config = "kafka.admin.ConfigCommand"
    tool(config, *at, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=777")
    assert "retention.ms=777" in tool(config, *at, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "log.retention.hours" in tool(
        config, *at, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"
    )
    tool("org.apache.kafka.tools.LogDirsCommand", *at, "--describe")
    tool("org.apache.kafka.tools.TopicCommand", *at, "--delete", "--topic", topic)


@pytest.mark.soak
def test_kafka_streams_counts_each_word_once_across_its_own_crash(scratch: Path) -> None:
    """`exactly_once_v2`: the application is killed in the middle, and the counts still add up. S12, S17."""
    words, count = ["tick", "tack", "tock"], 3000
    source = Path(__file__).with_name("java") / "Copy.java"
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        for topic in ("words", "counts"):
            admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
        application = f"count-{uuid.uuid4().hex[:6]}"
        command = [
            find_java().command,
            *SMALL,
            "-cp",
            classpath(KAFKA, STREAMS),
            *(str(source), broker.servers, application, "words", "counts", str(scratch / "state")),
        ]
        producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True})
        consumer = Consumer(
            {
                "bootstrap.servers": broker.servers,
                "group.id": "audit",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["counts"])
        latest: dict[str, int] = {}

        def follow(until: int, seconds: float, child: Child) -> None:
            deadline = time.monotonic() + seconds
            while sum(latest.values()) < until:
                assert time.monotonic() < deadline, f"stuck at {latest}: {_tail(scratch / 'streams.log')}"
                assert child.running, _tail(scratch / "streams.log")
                for message in consumer.consume(500, 0.2):
                    assert message.error() is None, message.error()
                    word, number = message.key().decode(), int(message.value())
                    assert number > latest.get(word, 0), f"{word} went from {latest.get(word)} to {number}"
                    latest[word] = number

        def feed(numbers: range) -> None:
            for i in numbers:
                producer.produce("words", key=str(i), value=words[i % 3])
            assert producer.flush(30) == 0

        env = {**os.environ, "LANG": "C.UTF-8"}
        feed(range(count // 2))
        first = Child(command, log=scratch / "streams.log", env=env)
        follow(count // 4, 120, first)
        feed(range(count // 2, count))
        first.kill()
        with Child(command, log=scratch / "streams.log", env=env) as second:
            follow(count, 120, second)
        consumer.close()
        assert latest == dict.fromkeys(words, count // 3)


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2500:] if path.exists() else ""
