"""The admin commands on the embedded broker and on Apache Kafka: the same words, the same answers (S22)."""

from __future__ import annotations

import importlib
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
import typer
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

from atonce.errors import AtOnceError


@dataclass(frozen=True)
class Answer:
    code: int
    output: str
    error: str

    def json(self) -> Any:
        return json.loads(self.output)


class Commands:
    """Runs `atonce WORDS` in this process, as `main` does, against one cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def __call__(self, *words: str, given: bytes = b"") -> Answer:
        app = typer.Typer(pretty_exceptions_enable=False)
        importlib.import_module(f"atonce.cli.{words[0]}").register(app)
        app.callback()(lambda: None)
        found = CliRunner().invoke(app, [*words, "--servers", self.servers], input=given)
        if isinstance(found.exception, AtOnceError):
            return Answer(found.exception.exit_code, found.output, str(found.exception))
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Answer(found.exit_code, found.output, "")


@pytest.fixture
def atonce(kafka_servers: str) -> Commands:
    return Commands(kafka_servers)


@pytest.fixture
def topic(atonce: Commands) -> str:
    name = f"tools-{uuid.uuid4().hex[:8]}"
    assert atonce("topics", "create", name, "--partitions", "3").code == 0
    return name


def test_topic_is_created_listed_described_and_deleted(atonce: Commands, topic: str) -> None:
    listed = {each["name"]: each["partitions"] for each in atonce("topics", "list", "--json").json()}
    assert listed[topic] == 3
    described = atonce("topics", "describe", topic, "--json").json()
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert described["settings"]["cleanup.policy"] == "delete"
    assert atonce("topics", "delete", topic, "--yes").code == 0
    assert topic not in atonce("topics", "list").output


def test_creating_a_topic_twice_is_refused_unless_that_is_fine(atonce: Commands, topic: str) -> None:
    again = atonce("topics", "create", topic)
    assert again.code == 2 and "exists already" in again.error
    assert atonce("topics", "create", topic, "--if-missing").code == 0


def test_deleting_needs_a_yes_and_an_existing_topic(atonce: Commands, topic: str) -> None:
    assert "add --yes" in atonce("topics", "delete", topic).error
    refused = atonce("topics", "delete", topic, "no-such-topic", "--yes")
    assert refused.code == 2 and "nothing was deleted" in refused.error
    assert topic in atonce("topics", "list").output


def test_what_produce_writes_consume_prints(atonce: Commands, topic: str) -> None:
    lines = b"".join(b"k%d:v%d\n" % (n, n) for n in range(50))
    written = atonce("produce", topic, "--key-separator", ":", "--compression", "lz4", given=lines)
    assert written.output.strip() == f"50 record(s) written to {topic}"
    shown = atonce("consume", topic, "--keys").output.splitlines()
    assert sorted(shown) == sorted(f"k{n}\tv{n}" for n in range(50))
    record = json.loads(atonce("consume", topic, "--json", "--max", "1").output)
    assert record["topic"] == topic and record["offset"] == 0 and record["key"].startswith("k")


def test_headers_tombstones_partition_and_time_are_written_and_read_back(atonce: Commands, topic: str) -> None:
    words = ["--key-separator", ":", "--null", "NULL", "--header", "by=me", "--header", "n=1=2"]
    words += ["--partition", "2", "--timestamp", "2026-01-31T12:00:00Z"]
    assert atonce("produce", topic, *words, given=b"a:one\nb:NULL\n").code == 0
    records = [json.loads(line) for line in atonce("consume", topic, "--json").output.splitlines()]
    headers = [{"key": "by", "value": "me"}, {"key": "n", "value": "1=2"}]
    common = {"topic": topic, "partition": 2, "timestamp": "2026-01-31T12:00:00.000+00:00", "headers": headers}
    assert records == [
        {**common, "offset": 0, "key": "a", "value": "one"},
        {**common, "offset": 1, "key": "b", "value": None},
    ]


def test_what_consume_prints_as_json_produce_takes_and_the_keys_are_always_there(atonce: Commands, topic: str) -> None:
    atonce("produce", topic, given=b"plain\n")
    lines = [
        {"key": None, "value": {"base64": "/wA="}, "headers": [], "partition": 1},
        {"key": "k", "value": None, "headers": [{"key": "h", "value": None}], "timestamp": 86_400_000},
    ]
    atonce("produce", topic, "--json", given="\n".join(map(json.dumps, lines)).encode())
    shown = atonce("consume", topic, "--json").output
    records = [json.loads(line) for line in shown.splitlines()]
    keys = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert [list(each) for each in records] == [keys] * 3
    assert {"base64": "/wA="} in [each["value"] for each in records]
    copy = f"{topic}-copy"
    atonce("produce", copy, "--json", "--partitions", "3", given=shown.encode())
    again = [json.loads(line) for line in atonce("consume", copy, "--json").output.splitlines()]
    assert again == [{**each, "topic": copy} for each in records]


@pytest.mark.parametrize(
    ("words", "given", "why"),
    [
        (["--header", "novalue"], b"a", "--header 'novalue' is not KEY=VALUE"),
        (["--timestamp", "2026-01-31T12:00:00"], b"a", "is not a time: expected such as 2026-01-31T12:00:00Z"),
        (["--partition", "7"], b"a", "`partition` is 7, but the topic has partitions 0 to 2"),
        (["--json"], b'{"value": "x"}\n{"worth": 1}', "line 2: 'worth' is not one of: key, value"),
        (["--json"], b"[1]", "line 1 is not a record such as"),
        (["--json", "--null", "x"], b"a", "--key-separator and --null do not go with it"),
    ],
)
def test_what_produce_cannot_take_is_told_in_one_line(
    atonce: Commands, topic: str, words: list[str], given: bytes, why: str
) -> None:
    answer = atonce("produce", topic, *words, given=given)
    assert answer.code in (1, 2) and why in answer.error and "\n" not in answer.error


def test_a_transactional_id_that_nobody_has_is_said_to_be_unknown(atonce: Commands) -> None:
    answer = atonce("transactions", "describe", "nobody-has-it")
    assert answer.code == 2 and "no transactional id 'nobody-has-it' is known" in answer.error


def test_produce_makes_a_missing_topic_and_says_so(atonce: Commands) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    assert f"created {name} with 2 partition(s)" in atonce("produce", name, "--partitions", "2", given=b"a\n").output
    assert atonce("consume", name, "--from-beginning").output == "a\n"


def test_keys_go_where_a_java_producer_would_put_them(atonce: Commands, topic: str, kafka_servers: str) -> None:
    """S20: murmur2, so that a topic can be written by both."""
    atonce("produce", topic, "--key-separator", ":", given=b"".join(b"%d:ours\n" % n for n in range(30)))
    producer = Producer({"bootstrap.servers": kafka_servers, "partitioner": "murmur2_random", "log_level": 2})
    for n in range(30):
        producer.produce(topic, key=b"%d" % n, value=b"theirs")
    assert producer.flush(20) == 0
    places: dict[str, set[int]] = {}
    for line in atonce("consume", topic, "--json").output.splitlines():
        record = json.loads(line)
        places.setdefault(record["key"], set()).add(record["partition"])
    assert len(places) == 30 and all(len(found) == 1 for found in places.values())


def test_consume_stops_at_max_and_starts_at_an_offset(atonce: Commands, topic: str) -> None:
    atonce("produce", topic, given=b"".join(b"%d\n" % n for n in range(9)))
    assert len(atonce("consume", topic, "--max", "4").output.splitlines()) == 4
    assert atonce("consume", topic, "--partition", "0", "--from", "1").output.splitlines() == ["3", "6"]
    assert atonce("consume", topic, "--from", "latest").output == ""


@pytest.mark.parametrize(
    "words", [("consume", "missing"), ("produce", "missing", "--no-create"), ("topics", "describe", "missing")]
)
def test_a_missing_topic_is_exit_code_2(atonce: Commands, words: tuple[str, ...]) -> None:
    answer = atonce(*words)
    assert answer.code == 2 and "missing" in answer.error


def test_lag_of_a_group_is_what_it_has_not_read(atonce: Commands, topic: str, kafka_servers: str) -> None:
    """S25: progress is visible to ordinary tools."""
    atonce("produce", topic, given=b"".join(b"%d\n" % n for n in range(12)))
    group = f"readers-{topic}"
    consumer = Consumer(
        {"bootstrap.servers": kafka_servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    got = []
    while len(got) < 12:
        got += [m for m in consumer.consume(12 - len(got), timeout=10) if m.error() is None]
    consumer.commit(asynchronous=False)
    members = atonce("groups", "describe", group, "--json").json()["members"]
    consumer.close()
    assert len(members) == 1
    atonce("produce", topic, given=b"a\nb\nc\n")
    described = atonce("groups", "describe", group, "--json").json()
    assert described["lag"] == 3 and {each["partition"] for each in described["offsets"]} == {0, 1, 2}
    assert next(each["lag"] for each in atonce("groups", "list", "--json").json() if each["group"] == group) == 3
    assert atonce("groups", "describe", "nobody").code == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_their_partitions_are_shown_under_both_group_protocols(
    atonce: Commands, topic: str, kafka_servers: str, protocol: str
) -> None:
    """S2: a partition belongs to one member."""
    group = f"{protocol}-{topic}"
    settings = {"bootstrap.servers": kafka_servers, "group.id": group, "group.protocol": protocol, "log_level": 2}
    consumers = [Consumer(settings | {"client.id": f"reader-{number}"}) for number in range(2)]
    for consumer in consumers:
        consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    members: list[dict[str, Any]] = []
    while len(members) < 2 or not all(member["partitions"] for member in members):
        assert time.monotonic() < deadline, members
        for consumer in consumers:
            consumer.poll(0.1)
        groups = {each["group"]: each["type"] for each in atonce("groups", "list", "--json").json()}
        if group not in groups:
            continue
        members = atonce("groups", "describe", group, "--json").json()["members"]
    for consumer in consumers:
        consumer.close()
    assert groups[group].lower() == protocol
    assert {member["client_id"] for member in members} == {"reader-0", "reader-1"}
    held = [each for member in members for each in member["partitions"]]
    assert len(set(held)) == len(held) and set(held) <= {f"{topic}-{number}" for number in range(3)}


def test_abort_ends_an_open_transaction_and_fences_its_producer(
    atonce: Commands, topic: str, kafka_servers: str
) -> None:
    """S10, S11: readers go on, the zombie does not."""
    transactional_id = f"open-{topic}"
    producer = Producer({"bootstrap.servers": kafka_servers, "transactional.id": transactional_id, "log_level": 2})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"pending", partition=1)
    assert producer.flush(20) == 0
    assert atonce("consume", topic).output == ""
    assert atonce("consume", topic, "--isolation", "read_uncommitted").output == "pending\n"
    described = atonce("transactions", "describe", transactional_id, "--json").json()
    assert described["state"] == "Ongoing" and described["partitions"] == [{"topic": topic, "partition": 1}]
    one = atonce("topics", "describe", topic, "--json").json()["partitions"][1]
    assert (one["stable"], one["latest"]) == (0, 1)
    # It is open, but its coordinator knows it: not hanging.
    assert atonce("transactions", "find-hanging", "--older-than", "0", "--topic", topic).code == 0
    assert atonce("transactions", "abort", transactional_id, "--yes").code == 0
    one = atonce("topics", "describe", topic, "--json").json()["partitions"][1]
    assert one["stable"] == one["latest"] == 2
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|state"):
        producer.commit_transaction(20)
    assert atonce("transactions", "describe", "unknown-id").code == 2


def test_doctor_finds_a_healthy_cluster_healthy(atonce: Commands) -> None:
    answer = atonce("doctor", "--json")
    verdicts = {each["subject"]: each["verdict"] for each in answer.json()}
    assert answer.code == 0, answer.output
    assert verdicts["clock"] == verdicts["features"] == verdicts["brokers"] == "ok"
    assert verdicts["transactions"] == verdicts["transaction time-out"] == verdicts["hanging transactions"] == "ok"
    assert all(each["advice"] for each in answer.json() if each["verdict"] in ("warning", "problem"))


def test_doctor_notices_a_reader_of_uncommitted_records(atonce: Commands, topic: str, kafka_servers: str) -> None:
    """The one visible sign of a wrong isolation level: it committed beyond an open transaction."""
    producer = Producer({"bootstrap.servers": kafka_servers, "transactional.id": f"d-{topic}", "log_level": 2})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"pending", partition=0)
    assert producer.flush(20) == 0
    reader = Consumer(
        {"bootstrap.servers": kafka_servers, "group.id": f"dirty-{topic}", "auto.offset.reset": "earliest"}
        | {"isolation.level": "read_uncommitted", "enable.auto.commit": False, "log_level": 2}
    )
    reader.subscribe([topic])
    while not [m for m in reader.consume(1, timeout=10) if m.error() is None]:
        pass
    reader.commit(asynchronous=False)
    reader.close()
    found = [each for each in atonce("doctor", "--json").json() if each["subject"] == "readers"]
    producer.abort_transaction(20)
    assert found[0]["verdict"] == "warning" and f"dirty-{topic}" in found[0]["found"]


def test_an_unreachable_cluster_is_exit_code_2_and_names_the_address() -> None:
    answer = Commands("127.0.0.1:1")("topics", "list")
    assert answer.code == 2 and "127.0.0.1:1" in answer.error
