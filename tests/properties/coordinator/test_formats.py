"""Whatever is journaled is read back as it was; damage is noticed, never guessed at."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atonce.coordinator.decision import JournalRecord, TopicPartition
from atonce.coordinator.groups import records as group_records
from atonce.coordinator.groups.consumer import records as consumer_records
from atonce.coordinator.groups.states import MemberState, TransactionState
from atonce.coordinator.transactions import records as transaction_records
from atonce.errors import CorruptLogError

text = st.text(max_size=20)
i32 = st.integers(0, 2**31 - 1)
i64 = st.integers(0, 2**63 - 1)
i16 = st.integers(-1, 2**15 - 1)
partitions = st.frozensets(st.builds(TopicPartition, text, i32), max_size=5)
assignment = st.lists(
    st.tuples(st.uuids(), st.lists(i32, min_size=1, max_size=4, unique=True).map(lambda p: tuple(sorted(p)))),
    max_size=3,
).map(tuple)

metadata = st.builds(
    transaction_records.TransactionMetadata,
    transactional_id=st.just("t"),
    producer_id=i64,
    producer_epoch=i16,
    timeout_ms=i32,
    state=st.sampled_from([s for s in TransactionState if s is not TransactionState.EMPTY]),
    last_update_ms=i64,
    previous_producer_id=i64,
    next_producer_id=i64,
    last_producer_epoch=i16,
    partitions=partitions,
    start_ms=i64,
    client_version=st.integers(0, 2),
)
transaction_values = st.one_of(
    st.builds(transaction_records.ProducerIdsRecord, i64),
    st.builds(transaction_records.TransactionRecord, st.just("t"), st.none() | metadata),
)
offset = st.builds(group_records.CommittedOffset, i64, i32, text, i64)
expiring = st.builds(group_records.CommittedOffset, i64, st.just(-1), text, i64, i64)
member = st.builds(
    group_records.MemberSnapshot,
    member_id=text,
    instance_id=st.none() | text,
    client_id=text,
    client_host=text,
    rebalance_timeout_ms=i32,
    session_timeout_ms=i32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
snapshot = st.builds(
    group_records.GroupSnapshot,
    protocol_type=text,
    generation=i32,
    protocol=st.none() | text,
    leader=st.none() | text,
    state_ms=i64,
    members=st.lists(member, max_size=3).map(tuple),
)
subscription = st.builds(
    consumer_records.Subscription,
    instance_id=st.none() | text,
    rack_id=st.none() | text,
    client_id=text,
    client_host=text,
    topics=st.lists(text, max_size=3).map(tuple),
    regex=st.none() | text,
    rebalance_timeout_ms=i32,
    assignor=st.none() | text,
)
current = st.builds(
    consumer_records.Current,
    epoch=st.integers(-2, 2**31 - 1),
    previous_epoch=i32,
    state=st.sampled_from(MemberState),
    assigned=assignment,
    revoking=assignment,
)
group_values = st.one_of(
    st.builds(group_records.OffsetRecord, text, text, i32, st.none() | offset | expiring),
    st.builds(group_records.GroupRecord, text, st.none() | snapshot),
    st.builds(consumer_records.ConsumerGroupEpoch, text, i32, st.integers(-(2**63), 2**63 - 1)),
    st.builds(consumer_records.ConsumerMemberRecord, text, text, st.none() | subscription),
    st.builds(consumer_records.TargetEpoch, text, st.none() | i32),
    st.builds(consumer_records.TargetAssignment, text, text, st.none() | assignment),
    st.builds(consumer_records.CurrentAssignment, text, text, st.none() | current),
)


@settings(max_examples=200, deadline=None)
@given(transaction_values)
def test_transaction_records_are_read_back_as_written(record: Any) -> None:
    assert transaction_records.decode(transaction_records.encode(record)) == record


@settings(max_examples=300, deadline=None)
@given(group_values)
def test_group_records_are_read_back_as_written(record: Any) -> None:
    assert group_records.decode(group_records.encode(record)) == record


@settings(max_examples=200, deadline=None)
@given(group_values, st.data())
def test_record_that_ends_early_is_reported(record: Any, data: st.DataObject) -> None:
    """F13."""
    whole = group_records.encode(record)
    if whole.value is None:
        return
    # The last byte of a flexible record says that no tagged fields follow; older readers end before it.
    cut = data.draw(st.integers(0, max(0, len(whole.value) - 2)))
    try:
        found = group_records.decode(JournalRecord(whole.key, whole.value[:cut]))
    except CorruptLogError:
        return
    pytest.fail(f"{record} cut to {cut} bytes was read as {found}")


def test_offset_commit_is_in_kafkas_own_format() -> None:
    """Byte by byte, so that Kafka's tools read the topic: OffsetCommitKey 1, OffsetCommitValue 3."""
    record = group_records.OffsetRecord("g", "topic", 2, group_records.CommittedOffset(5, 7, "m", 1000))
    encoded = group_records.encode(record)
    assert encoded.key == struct.pack(">hh1sh5si", 1, 1, b"g", 5, b"topic", 2)
    assert encoded.value == struct.pack(">hqih1sq", 3, 5, 7, 1, b"m", 1000)


def test_transaction_is_in_kafkas_own_format() -> None:
    """TransactionLogKey 0, TransactionLogValue 1 with its tagged fields."""
    state = transaction_records.TransactionMetadata(
        transactional_id="t",
        producer_id=9,
        producer_epoch=4,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        last_update_ms=2000,
        partitions=frozenset({TopicPartition("out", 1)}),
        start_ms=1000,
        client_version=2,
    )
    encoded = transaction_records.encode(transaction_records.TransactionRecord("t", state))
    assert encoded.key == struct.pack(">hh1s", 0, 1, b"t")
    assert encoded.value is not None
    topics = bytes([2, 4]) + b"out" + bytes([2]) + struct.pack(">i", 1) + bytes([0])
    head = struct.pack(">hqhib", 1, 9, 4, 60_000, 1) + topics + struct.pack(">qq", 2000, 1000)
    assert encoded.value.startswith(head)
    tags = encoded.value[len(head) :]
    assert tags[0] == 4
    assert tags[1:11] == bytes([0, 8]) + struct.pack(">q", -1)


def test_record_of_an_unknown_kind_is_skipped() -> None:
    newer = JournalRecord(struct.pack(">h", 999), b"whatever")
    assert transaction_records.decode(newer) is None
    assert group_records.decode(newer) is None
