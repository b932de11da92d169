"""What planning believes of a running query's input, and when (F23, F31, F32). Asked directly, without a Spark session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from atonce.broker.embedded import Broker
from atonce.client import identity
from atonce.client.cluster import NO_ID, Cluster
from atonce.connectors.kafka.read import watch as source_watch
from atonce.connectors.kafka.read.stream import StreamReader
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import DataLossError, UsageError
from atonce.verify.wire.decode import Request
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.client.parts import admin, eventually, fresh_name, fresh_topic
from tests.contract.connectors.kafka.reading import fill
from tests.contract.connectors.kafka.test_source_planning import expected, planned, stream_reader, values


def topic_id(servers: str, topic: str) -> str:
    with Cluster(servers) as cluster:
        found = cluster.topic(topic)
        assert found is not None
        return found.id


def make_again(servers: str, topic: str, partitions: int = 1) -> str:
    """Deletes it and makes it again; returns the new id."""
    before = topic_id(servers, topic)
    admin(servers).delete_topics([topic])[topic].result(30)

    def made() -> str | None:
        admin(servers).create_topics([NewTopic(topic, partitions, 1)])[topic].exception(30)
        with Cluster(servers) as cluster:
            found = cluster.topic(topic)
            return found.id if found is not None and found.id != before else None

    return str(eventually(made))


def pipeline_reader(servers: str, topic: str, **options: str) -> StreamReader:
    """As a pipeline makes it: it knows the ids that its ledger knows."""
    known = {"atonce.topicIds": {topic: topic_id(servers, topic)}, "atonce.first": {topic: {"0": 0}}}
    given = {name: json.dumps(value) for name, value in known.items()}
    return stream_reader(servers, subscribe=topic, **given, **options)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked again is believed soon, and everything is looked at each time."""
    monkeypatch.setattr(source_watch, "BELIEVED_AFTER_S", 0.5)
    monkeypatch.setattr(source_watch, "ID_BELIEVED_AFTER_S", 0.3)
    monkeypatch.setattr(source_watch, "ASKED_AGAIN_EVERY_S", 0.05)
    monkeypatch.setattr(source_watch, "PARTITIONS_EVERY_S", 0.0)


def once(monkeypatch: pytest.MonkeyPatch, name: str, instead: Callable[..., Any], times: int = 2) -> list[int]:
    """The next answers of a function of the watch are others; the list says how many of them were given."""
    real, given = getattr(source_watch, name), list[int]()

    def answer(*arguments: Any) -> Any:
        found = real(*arguments)
        if len(given) >= times:
            return found
        given.append(1)
        return instead(found)

    monkeypatch.setattr(source_watch, name, answer)
    return given


def test_end_that_is_lower_for_a_moment_is_asked_again(embedded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F23: a new leader that does not know its high watermark yet."""
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    reader, start = stream_reader(embedded, subscribe=topic), {topic: {"0": 10}}
    given = once(monkeypatch, "listed", lambda found: dict.fromkeys(found, 4))
    assert planned(reader, start) == start
    assert len(given) == 2
    fill(embedded, topic, range(10, 12))
    assert planned(reader, start) == {topic: {"0": 12}}


def test_drain_that_met_a_lower_end_still_reads_to_the_end(embedded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    reader = stream_reader(embedded, subscribe=topic)
    given = once(monkeypatch, "listed", lambda found: dict.fromkeys(found, 4), times=1)
    reader.prepareForTriggerAvailableNow()
    assert planned(reader, {topic: {"0": 7}}) == {topic: {"0": 10}}
    assert given


def test_open_transaction_below_the_position_is_no_loss(kafka_servers: str) -> None:
    """Read uncommitted before, read committed now: the last stable offset lies below what was read."""
    topic = fresh_topic(kafka_servers)
    producer = Producer({"bootstrap.servers": kafka_servers, "transactional.id": fresh_name("writer")})
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in range(5):
        producer.produce(topic, value=f"v{n}", partition=0)
    assert producer.flush(30) == 0
    reader, start = stream_reader(kafka_servers, subscribe=topic), {topic: {"0": 5}}
    began = time.monotonic()
    assert planned(reader, start) == start
    assert time.monotonic() - began < source_watch.BELIEVED_AFTER_S
    producer.commit_transaction(30)
    assert eventually(lambda: planned(reader, start) != start)


@pytest.mark.parametrize("drained", [False, True])
def test_topic_that_metadata_leaves_out_for_a_moment_is_not_gone(
    embedded: str, monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    reader = stream_reader(embedded, subscribePattern=f"{topic}.*")
    given = once(monkeypatch, "selected", lambda found: {})
    if drained:
        reader.prepareForTriggerAvailableNow()
    assert planned(reader, {topic: {"0": 3}}) == {topic: {"0": 10}}
    assert len(given) == 2


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
def test_topic_deleted_under_a_running_query_is_data_loss(how: str, soon: None) -> None:
    # A producer that still lives would make the topic again.
    with Broker(settings={"auto.create.topics.enable": False}) as broker:
        deleted_under_a_running_query(broker.servers, how)


def deleted_under_a_running_query(embedded: str, how: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    reader, patient = (stream_reader(embedded, failOnDataLoss=fail, **{how: topic}) for fail in ("true", "false"))
    start = planned(reader, {topic: {"0": 0}})
    assert planned(patient, {topic: {"0": 0}}) == start
    admin(embedded).delete_topics([topic])[topic].result(30)
    with pytest.raises(DataLossError, match=rf"partitions that were being read are gone: {topic}/0 \(read up to 10\)"):
        planned(reader, start)
    assert planned(patient, start) == start, "it goes on with what is there"
    assert planned(patient, start) == start


def test_topic_made_again_and_filled_past_the_position_is_refused(kafka_servers: str, soon: None) -> None:
    topic = fresh_topic(kafka_servers)
    fill(kafka_servers, topic, range(10))
    old = topic_id(kafka_servers, topic)
    readers = [
        pipeline_reader(kafka_servers, topic),
        pipeline_reader(kafka_servers, topic, failOnDataLoss="false"),
        stream_reader(kafka_servers, subscribe=topic),
    ]
    starts = [
        planned(reader, reader.initialOffset() if n < 2 else {topic: {"0": 0}}) for n, reader in enumerate(readers)
    ]
    new = make_again(kafka_servers, topic)
    fill(kafka_servers, topic, range(100))
    for reader, start in zip(readers, starts, strict=True):
        with pytest.raises(
            DataLossError, match=rf"its id is {new}, but what was read up to .*/0': 10.* belongs to {old}"
        ):
            planned(reader, start)


def test_plain_query_that_may_lose_data_goes_on_in_a_topic_made_again(embedded: str, soon: None) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    reader = stream_reader(embedded, subscribe=topic, failOnDataLoss="false")
    start = planned(reader, {topic: {"0": 0}})
    make_again(embedded, topic)
    fill(embedded, topic, range(100, 120))
    end = eventually(lambda: found if (found := planned(reader, start)) != start else None)
    assert values(reader, reader.partitions(start, end)) == expected(range(110, 120))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_batch_planned_for_a_topic_is_read_from_that_topic_or_not_at_all(
    embedded: str, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """Planned, then the topic is made again before the tasks run, or before the batch is called again."""
    monkeypatch.setattr(identity, "PATIENCE_MS", 300)
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    old, reader = topic_id(embedded, topic), pipeline_reader(embedded, topic, failOnDataLoss=fail)
    start = reader.initialOffset()
    end = planned(reader, start)
    assert end == {topic: {"0": 10}, "@ids": {topic: old}}
    tasks = reader.partitions(start, end)
    new = make_again(embedded, topic)
    fill(embedded, topic, range(100, 200))
    again = pipeline_reader(embedded, topic, failOnDataLoss=fail)
    for reading, parts in ((reader, tasks), (again, again.partitions(start, end))):
        with pytest.raises(DataLossError, match=f"(?s){old}.*{new}"):
            values(reading, parts)


def test_topic_found_later_is_planned_with_its_id(embedded: str, soon: None) -> None:
    name = fresh_name("later")
    known = {"atonce.topicIds": "{}", "atonce.first": "{}", "startingOffsets": "latest"}
    reader = stream_reader(embedded, subscribePattern=f"{name}.*", **known)
    start = reader.initialOffset()
    assert start == {"@ids": {}} and planned(reader, start) == start
    admin(embedded).create_topics([NewTopic(name, 1, 1)])[name].result(30)
    fill(embedded, name, range(10))
    noted = planned(reader, start)
    assert noted == {name: {"0": 0}, "@ids": {name: topic_id(embedded, name)}}
    assert reader.partitions(start, noted) == []
    end = planned(reader, noted)
    assert values(reader, reader.partitions(noted, end)) == expected(range(10))


def test_topic_that_never_was_there_is_named_as_before(embedded: str) -> None:
    topic = fresh_topic(embedded)
    with pytest.raises(UsageError, match="topic 'no-such-topic-here' does not exist"):
        planned(stream_reader(embedded, subscribe=f"{topic},no-such-topic-here"), {topic: {"0": 0}})


def test_waiting_for_input_pauses_a_little(embedded: str) -> None:
    """Spark asks again a millisecond later, whatever the answer was."""
    topic = fresh_topic(embedded)
    reader, start = stream_reader(embedded, subscribe=topic), {topic: {"0": 0}}
    planned(reader, start)
    began = time.monotonic()
    for _ in range(20):
        planned(reader, start)
    assert time.monotonic() - began >= 19 * source_watch.IDLE_PAUSE_S


def without_ids(request: Request, body: Any) -> Any:
    """Metadata of a cluster that gives its topics no ids (before 2.8, and some services)."""
    return replace(body, topics=tuple(replace(topic, topic_id=None) for topic in body.topics))


def test_topics_without_ids_are_read_by_name(kafka_servers: str) -> None:
    topic = fresh_topic(kafka_servers)
    fill(kafka_servers, topic, range(10))
    with Proxy(kafka_servers) as proxy:
        rule = Rule(apis=frozenset({"metadata"}), action=Action.CHANGE, change=without_ids, times=1000)
        proxy.add(rule)
        assert topic_id(proxy.servers, topic) == NO_ID
        assert KafkaSource(Kafka(topic, servers=proxy.servers)).source_ids() == {}
        known = {"atonce.topicIds": "{}", "atonce.first": json.dumps({topic: {"0": 0}})}
        for options in ({}, known):
            reader = stream_reader(proxy.servers, subscribe=topic, **options)
            start = reader.initialOffset() if options else {topic: {"0": 0}}
            end = planned(reader, start)
            assert values(reader, reader.partitions(start, end)) == expected(range(10))
        assert end == {topic: {"0": 10}, "@ids": {}}


def test_start_that_names_a_partition_that_is_not_read_is_refused(embedded: str) -> None:
    """Passed over in silence, it would begin at the earliest offset of what is there."""
    topic = fresh_topic(embedded, partitions=2)
    named: dict[str, dict[str, int]] = {topic: {"0": 3, "2": 7}, "elsewhere": {"0": 1}}
    with pytest.raises(UsageError, match=rf"not read: elsewhere/0, {topic}/2; there are: {topic}/0, {topic}/1"):
        KafkaSource(Kafka(topic, servers=embedded, start=named)).first_positions()
    with pytest.raises(UsageError, match=r"start is \{.*: 5\}, not earliest, latest, \{topic: \{partition: offset\}\}"):
        KafkaSource(Kafka(topic, servers=embedded, start={topic: 5})).first_positions()  # type: ignore[dict-item]
    found = KafkaSource(Kafka(topic, servers=embedded, start={topic: {"0": 3}})).first_positions()
    assert found == {f"{topic}/0": 3, f"{topic}/1": 0}
