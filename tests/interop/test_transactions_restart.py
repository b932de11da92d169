"""SIGKILL of the embedded broker between the steps of a transaction: what was answered holds (S10, S12, F11, F14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode

from atonce.broker.embedded import Broker
from tests.interop.coordinator_calls import Calls, Producer, eventually, fresh
from tests.interop.group_calls import GroupCalls

OK = ErrorCode.none


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def killed(broker: Broker) -> None:
    broker.kill()
    broker.restart()


def committed_values(servers: str, topic: str, count: int) -> list[bytes]:
    """What a read_committed reader gets, up to the last stable offset, which must be the end of the log."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": fresh("reader"), "isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def read() -> int:
        found.extend(m.value() for m in reader.consume(100, 0.2) if m.error() is None)
        return len(found)

    eventually(read, lambda size: size >= count, 15.0)
    read()
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), 10)
    reader.close()
    assert low == 0
    assert high >= len(found)
    return found


def test_open_transaction_survives_a_kill_and_commits(broker: Broker) -> None:
    with Calls(broker.servers) as calls:
        topic, group, name = calls.topic(), fresh("group"), fresh("txn")
        producer = calls.start_producer(name)
        assert calls.produce(name, producer, topic, sequence=0, value=b"before") is OK
        assert calls.commit_offset_in_transaction(name, producer, group, topic, 11) is OK
    killed(broker)
    with Calls(broker.servers) as calls:
        assert calls.transaction_state(name).transaction_state == "Ongoing"
        assert calls.fetch_offset(group, topic, stable=True).error is ErrorCode.unstable_offset_commit
        assert calls.produce(name, producer, topic, sequence=1, value=b"after") is OK
        assert calls.end(name, producer, commit=True)[0] is OK
        calls.wait_for_state(name, "CompleteCommit")
        assert calls.fetch_offset(group, topic, stable=True).offset == 11
        assert committed_values(broker.servers, topic, 2) == [b"before", b"after"]


@pytest.mark.parametrize("commit", [True, False])
def test_decided_transaction_is_finished_after_a_kill(broker: Broker, commit: bool) -> None:
    """The kill comes with the answer: the markers may or may not have been written."""
    with Calls(broker.servers) as calls:
        topic, group, name = calls.topic(), fresh("group"), fresh("txn")
        producer = calls.start_producer(name)
        assert calls.produce(name, producer, topic, sequence=0) is OK
        assert calls.commit_offset_in_transaction(name, producer, group, topic, 5) is OK
        answer = calls.end(name, producer, commit=commit)
        broker.kill()
    broker.restart()
    with Calls(broker.servers) as calls:
        calls.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")
        assert calls.end(name, producer, commit=commit) == answer, (
            "a retry is answered like the first, after a restart too"
        )
        assert calls.end(name, producer, commit=not commit)[0] is ErrorCode.invalid_txn_state
        assert calls.fetch_offset(group, topic, stable=True).offset == (5 if commit else -1)
        assert committed_values(broker.servers, topic, 1 if commit else 0) == ([b"v"] if commit else [])


def test_zombie_is_still_fenced_after_a_kill(broker: Broker) -> None:
    """F16."""
    with Calls(broker.servers) as calls:
        topic, name = calls.topic(), fresh("txn")
        old = calls.start_producer(name)
        assert calls.produce(name, old, topic, sequence=0) is OK
        new = calls.start_producer(name)
    killed(broker)
    with Calls(broker.servers) as calls:
        assert calls.produce(name, old, topic, sequence=1) is ErrorCode.invalid_producer_epoch
        assert calls.end(name, old, commit=True)[0] is ErrorCode.producer_fenced
        assert calls.produce(name, new, topic, sequence=0) is OK


def test_producer_ids_are_not_handed_out_again_after_a_kill(broker: Broker) -> None:
    seen: set[Producer] = set()
    for _ in range(2):
        with Calls(broker.servers) as calls:
            answers = {calls.init(None)[1] for _ in range(20)}
        assert not answers & seen
        seen |= answers
        killed(broker)


def test_members_of_a_group_go_on_after_a_kill(broker: Broker) -> None:
    """F18: no rebalance, no repeated work."""
    with GroupCalls(broker.servers) as calls:
        topic, group = calls.topic(), fresh("group")
        member = calls.stable_alone(group)
        assert calls.commit_offset(group, topic, 3, generation=1, member_id=member.member_id, metadata="m") is OK
    killed(broker)
    with GroupCalls(broker.servers) as calls:
        assert calls.heartbeat(group, member) is OK
        assert calls.sync(group, member).assignment == b"mine"
        fetched = calls.fetch_offset(group, topic)
        assert (fetched.offset, fetched.metadata) == (3, "m")
        assert calls.commit_offset(group, topic, 4, generation=1, member_id=member.member_id) is OK
