"""Kafka's own Java tools and client against both brokers: what works with one must work with the other (S22)."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from bench.peers import java_command
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from atonce.local.java import find_java
from atonce.local.servers.jars import classpath
from atonce.local.servers.pins import KAFKA, TOOLS

HERE = Path(__file__).parent


def tool(main: str, *arguments: str, given: str = "") -> str:
    """Standard output of one of Kafka's command-line tools."""
    command = [find_java().command, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath(KAFKA, TOOLS), main, *arguments]
    answer = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, f"{main} failed: {answer.stdout}\n{answer.stderr}"
    return answer.stdout


@pytest.fixture
def topic(kafka_servers: str) -> str:
    name = f"java-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    for made in admin.create_topics([NewTopic(name, num_partitions=1)]).values():
        made.result(20)
    return name


def test_console_consumer_reads_what_console_producer_wrote(kafka_servers: str, topic: str) -> None:
    """S22: keys and values as text, with Kafka's defaults (idempotent, acks=all)."""
    lines = "".join(f"k{n}:value {n}\n" for n in range(5))
    tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka_servers, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        given=lines,
    )
    shown = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka_servers, "--topic", topic, "--from-beginning", "--max-messages", "5"),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
        *("--isolation-level", "read_committed"),
    )
    assert shown.splitlines() == lines.splitlines()


def test_kafka_transactions_tool_lists_and_describes_an_open_transaction(kafka_servers: str, topic: str) -> None:
    """S11, S22: the tool an operator reaches for when readers are stuck."""
    transactional_id = f"open-{topic}"
    producer = Producer({"bootstrap.servers": kafka_servers, "transactional.id": transactional_id, "log_level": 2})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(20)
    main = "org.apache.kafka.tools.TransactionsCommand"
    listed = tool(main, "--bootstrap-server", kafka_servers, "list")
    mine = [line.split() for line in listed.splitlines() if transactional_id in line]
    assert mine and "Ongoing" in mine[0]
    described = tool(main, "--bootstrap-server", kafka_servers, "describe", "--transactional-id", transactional_id)
    assert "Ongoing" in described and f"{topic}-0" in described
    producers = tool(
        main, "--bootstrap-server", kafka_servers, "describe-producers", "--topic", topic, "--partition", "0"
    )
    assert len(producers.splitlines()) == 2, producers
    producer.abort_transaction(20)


def test_java_client_commits_aborts_fences_and_reads(kafka_servers: str) -> None:
    """S9–S11, S22: the Java client's transactions as a program sees them."""
    name = f"java-{uuid.uuid4().hex[:8]}"
    command = [*java_command(HERE / "JavaClient.java", KAFKA), kafka_servers, name]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert answer.returncode == 0, answer.stderr
    facts = dict(line.split(" ", 1) for line in answer.stdout.splitlines())
    assert facts == {
        "partitions": "1",
        "fenced": "true",
        "committed": "[first, second, third]",
        "uncommitted": "[first, second, aborted, third]",
        "offset": "2",
        "state": "CompleteCommit",
    }, json.dumps(facts)
