"""Requests about topics and their records that clients seldom send: the embedded broker answers as Apache Kafka does."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from atonce.records.record import build_batch, iter_records
from tests.interop.coordinator_calls import PASSING, Producer, eventually
from tests.interop.script import Script, differences

DELETE_TOPICS, CREATE_TOPICS = 20, 19


@pytest.fixture(scope="module")
def brokers(embedded: str, apache_kafka: str) -> Iterator[tuple[Script, Script]]:
    with Script(embedded) as ours, Script(apache_kafka) as theirs:
        yield ours, theirs


def same(brokers: tuple[Script, Script], play: Callable[[Script], None]) -> None:
    for script in brokers:
        script.answers.clear()
        play(script)
    assert brokers[0].answers
    assert differences(*brokers) == []


def topic(script: Script, partitions: int = 1) -> str:
    made = script.topic(partitions)
    script.remember(made, "a topic")
    return made


def test_deleting_by_name_and_by_id(brokers: tuple[Script, Script]) -> None:
    """A name together with another topic's id deletes neither."""

    def delete(script: Script, what: str, *named: tuple[str | None, uuid.UUID | None]) -> None:
        topics = [{"name": name, "topic_id": topic_id} for name, topic_id in named]
        script.note(what, DELETE_TOPICS, 6, topics=topics, timeout=10_000)

    def play(script: Script) -> None:
        one, other = topic(script), topic(script)
        ids = {name: script.topic_id(name) for name in (one, other)}
        delete(script, "a name and another topic's id", (one, ids[other]))
        delete(script, "a name and its own id", (one, ids[one]))
        delete(script, "neither", (None, None))
        delete(script, "a name twice", (one, None), (one, None))
        delete(script, "an id twice", (None, ids[one]), (None, ids[one]))
        delete(script, "a name, and its id besides", (one, None), (None, ids[one]))
        delete(script, "nobody's name and nobody's id", ("nobody", None), (None, uuid.UUID(int=7)))
        delete(script, "one of each", (one, None), (None, ids[other]))

    same(brokers, play)


def test_partition_named_twice_in_a_produce(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        name = topic(script, 2)
        first, second = (build_batch([(None, value)], timestamp_ms=int(time.time() * 1000)) for value in (b"1", b"2"))

        def produce(what: str, *data: tuple[int, bytes]) -> None:
            topics = [{"name": name, "partition_data": [{"index": i, "records": records}]} for i, records in data[:1]]
            topics[0]["partition_data"] += [{"index": i, "records": records} for i, records in data[1:]]
            script.note(what, 0, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=topics)

        produce("the same partition twice", (0, first), (0, second))
        produce("another between them", (0, first), (1, first), (0, second))
        wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
        fetched = script.call(
            1,
            11,
            replica_id=-1,
            max_wait=100,
            min_bytes=1,
            max_bytes=10_000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": name, "partitions": [{**wanted, "partition_max_bytes": 10_000}]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        data = memoryview(fetched.responses[0].partitions[0].records)
        half = len(data) // 2
        values = [record.value for part in (data[:half], data[half:]) for record in iter_records(part)]
        script.answers.append(("what is stored", values))

    same(brokers, play)


def test_segments_below_a_megabyte(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        for name, value in (
            ("segment.bytes", "100"),
            ("segment.bytes", "1048575"),
            ("segment.bytes", "1048576"),
            ("internal.segment.bytes", "100"),
        ):
            wanted = {
                "name": script.name("topic"),
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": name, "value": value}],
            }
            answer = script.call(CREATE_TOPICS, 7, topics=[wanted], timeout=5000, validate_only=True)
            script.answers.append((f"{name}={value}", answer.topics[0].error_code.name))

    same(brokers, play)


def test_first_epochs_of_a_group_under_the_new_protocol(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        name, group = topic(script), script.name("group")
        script.coordinator(group, 0)

        def join(what: str) -> None:
            fields: dict[str, Any] = {
                "group_id": group,
                "member_id": str(uuid.uuid4()),
                "member_epoch": 0,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": 30_000,
                "subscribed_topic_names": [name],
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": [],
            }
            answer = eventually(lambda: script.call(68, 1, **fields), lambda a: a.error_code not in PASSING)
            script.answers.append((what, (answer.error_code.name, answer.member_epoch)))

        join("the first member")  # Kafka takes its time to assign partitions to a second one; we do not
        (found,) = script.call(69, 0, group_ids=[group], include_authorized_operations=False).groups
        script.answers.append(("the group", (found.group_epoch, found.assignment_epoch)))

    same(brokers, play)


def test_markers_from_a_coordinator_that_was_replaced(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        name, transactional_id = topic(script), script.name("txn")
        producer = script.start_producer(transactional_id)
        script.produce_when_ready(transactional_id, producer, name, sequence=0)
        _, following = script.end(transactional_id, producer, commit=True)
        script.wait_for_state(transactional_id, "CompleteCommit")
        script.produce_when_ready(transactional_id, following, name, sequence=0)
        for epoch in (-1, 0):
            marker = {
                "producer_id": producer.producer_id,
                "producer_epoch": following.epoch,
                "transaction_result": False,
                "topics": [{"name": name, "partition_indexes": [0]}],
                "coordinator_epoch": epoch,
            }
            script.note(f"coordinator epoch {epoch}", 27, 1, markers=[marker])

    same(brokers, play)


def test_last_stable_offset_after_records_of_an_open_transaction_were_deleted(brokers: tuple[Script, Script]) -> None:
    def play(script: Script) -> None:
        name, transactional_id = topic(script), script.name("txn")
        producer = script.start_producer(transactional_id)
        asked = [{"name": name, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}]

        def stable(what: str) -> None:
            script.note(what, 2, 7, replica_id=-1, isolation_level=1, topics=asked)

        script.produce(None, Producer(-1, -1), name, sequence=-1)
        for sequence in range(3):
            script.produce_when_ready(transactional_id, producer, name, sequence=sequence)
            stable(f"after record {sequence}")
        for before in (1, 2, 4):
            deleted = [{"name": name, "partitions": [{"partition_index": 0, "offset": before}]}]
            script.note(f"deleted before {before}", 21, 2, topics=deleted, timeout=5000)
            stable(f"after deleting before {before}")
        script.produce_when_ready(transactional_id, producer, name, sequence=3)
        stable("after the last record")

    same(brokers, play)
