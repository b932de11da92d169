"""The records of `__consumer_offsets` for classic groups and offsets, in Kafka's formats.

The new protocol's records stand in `consumer_records`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from atonce.coordinator.decision import JournalRecord
from atonce.coordinator.groups.consumer import records as consumer_records
from atonce.coordinator.wire import Reader, Writer
from atonce.errors import CorruptLogError

_OFFSET_KEYS = (0, 1)
_OFFSET_KEY = 1
_GROUP_KEY = 2
# Kafka writes version 3 unless the commit has an expiry of its own, which only version 1 has a place for.
_OFFSET_VALUE, _OFFSET_VALUE_WITH_EXPIRY = 3, 1
_GROUP_VALUE = 3

_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">qih")  # offset, leader epoch, length of the metadata
_METADATA_START = 2 + _OFFSET_HEAD.size
_OFFSET_KEY_BYTES = _LENGTH.pack(_OFFSET_KEY)
_OFFSET_VALUE_BYTES = _LENGTH.pack(_OFFSET_VALUE)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None  # only from OffsetCommit 2 to 4, which carried a retention time


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's committed offset of one partition; none: it is removed."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # its metadata for the group's protocol
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """What is journaled of a classic group: one generation with its assignment, or that it is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The state of a classic group; none: the group is gone."""

    group_id: str
    snapshot: GroupSnapshot | None


def encode(record: object) -> JournalRecord:
    if isinstance(record, OffsetRecord):
        key = Writer(_OFFSET_KEY).string(record.group_id).string(record.topic).i32(record.partition).done()
        return JournalRecord(key, None if record.committed is None else _encode_offset(record.committed))
    if isinstance(record, GroupRecord):
        key = Writer(_GROUP_KEY).string(record.group_id).done()
        return JournalRecord(key, None if record.snapshot is None else _encode_group(record.snapshot))
    return consumer_records.encode(record)


def decode(record: JournalRecord) -> object | None:
    """The typed record, or None for one of a kind that is not known: written by a newer version, and skipped."""
    if record.value is not None and record.key[:2] == _OFFSET_KEY_BYTES and record.value[:2] == _OFFSET_VALUE_BYTES:
        return _decode_plain_offset(record.key, record.value)
    key = Reader(record.key)
    if key.version in _OFFSET_KEYS:
        group_id, topic, partition = key.string(), key.string(), key.i32()
        committed = None if record.value is None else _decode_offset(record.value)
        return OffsetRecord(group_id, topic, partition, committed)
    if key.version == _GROUP_KEY:
        return GroupRecord(key.string(), None if record.value is None else _decode_group(record.value))
    return consumer_records.decode(key, record.value)


def name_of(key: bytes) -> str | None:
    """What a key speaks of, for people; None if it is none of ours."""
    try:
        reader = Reader(key)
        if reader.version in _OFFSET_KEYS:
            return f"offset of group {reader.string()!r} for {reader.string()}-{reader.i32()}"
        if reader.version == _GROUP_KEY:
            return f"group {reader.string()!r}"
        return consumer_records.name_of(reader)
    except (CorruptLogError, UnicodeDecodeError):
        return None


def _encode_offset(committed: CommittedOffset) -> bytes:
    if committed.expire_ms is not None:
        writer = Writer(_OFFSET_VALUE_WITH_EXPIRY).i64(committed.offset).string(committed.metadata)
        return writer.i64(committed.commit_ms).i64(committed.expire_ms).done()
    writer = Writer(_OFFSET_VALUE).i64(committed.offset).i32(committed.leader_epoch)
    return writer.string(committed.metadata).i64(committed.commit_ms).done()


def _decode_offset(value: bytes) -> CommittedOffset:
    reader = Reader(value, flexible_from=4)
    offset = reader.i64()
    leader_epoch = reader.i32() if reader.version >= 3 else -1
    metadata, commit_ms = reader.string(), reader.i64()
    expire_ms = reader.i64() if reader.version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, None if expire_ms < 0 else expire_ms)


def _decode_plain_offset(key: bytes, value: bytes) -> OffsetRecord:
    """What journals are full of, read without a `Reader`: restarts wait for it."""
    try:
        group_end = 4 + _LENGTH.unpack_from(key, 2)[0]
        topic_end = group_end + 2 + _LENGTH.unpack_from(key, group_end)[0]
        (partition,) = _PARTITION.unpack_from(key, topic_end)
        offset, leader_epoch, length = _OFFSET_HEAD.unpack_from(value, 2)
        if group_end < 4 or topic_end < group_end + 2 or length < 0:
            raise struct.error("a length below 0")
        metadata_end = _METADATA_START + length
        (commit_ms,) = _TIMESTAMP.unpack_from(value, metadata_end)
        metadata = value[_METADATA_START:metadata_end].decode()
        group_id, topic = key[4:group_end].decode(), key[group_end + 2 : topic_end].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptLogError(
            f"an offset in __consumer_offsets cannot be read ({error}): key {key!r}; "
            f"restore the data directory from a copy"
        ) from error
    return OffsetRecord(group_id, topic, partition, CommittedOffset(offset, leader_epoch, metadata, commit_ms))


def _encode_group(snapshot: GroupSnapshot) -> bytes:
    writer = Writer(_GROUP_VALUE).string(snapshot.protocol_type).i32(snapshot.generation)
    writer.string(snapshot.protocol).string(snapshot.leader).i64(snapshot.state_ms)

    def member(w: Writer, m: MemberSnapshot) -> None:
        w.string(m.member_id).string(m.instance_id).string(m.client_id).string(m.client_host)
        w.i32(m.rebalance_timeout_ms).i32(m.session_timeout_ms).blob(m.subscription).blob(m.assignment)

    return writer.array(snapshot.members, member).done()


def _decode_group(value: bytes) -> GroupSnapshot:
    reader = Reader(value, flexible_from=4)
    version = reader.version
    protocol_type, generation = reader.string(), reader.i32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_ms = reader.i64() if version >= 2 else -1

    def member(r: Reader) -> MemberSnapshot:
        member_id = r.string()
        instance_id = r.nullable_string() if version >= 3 else None
        client_id, client_host = r.string(), r.string()
        rebalance_timeout_ms = r.i32() if version >= 1 else -1
        session_timeout_ms = r.i32()
        snapshot = MemberSnapshot(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            subscription=r.blob(),
            assignment=r.blob(),
        )
        if version >= 4:
            r.tags()
        return snapshot

    return GroupSnapshot(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_ms=state_ms,
        members=tuple(reader.array(member)),
    )
