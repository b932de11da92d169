"""The records of `__consumer_offsets` for groups under the new protocol (KIP-848), in Kafka's formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from atonce.coordinator.decision import JournalRecord
from atonce.coordinator.groups.states import MemberState
from atonce.coordinator.wire import Reader, Writer

_GROUP, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT = 3, 5, 6, 7, 8
_TAG_METADATA_HASH = 0
_TAG_CLASSIC = 0

T = TypeVar("T")

# Partitions by topic id: an assignment. Kept sorted, so that equal assignments are equal values.
Assignment = tuple[tuple[UUID, tuple[int, ...]], ...]


def assignment(partitions: dict[UUID, set[int]]) -> Assignment:
    return tuple(sorted((t, tuple(sorted(ps))) for t, ps in partitions.items() if ps))


@dataclass(frozen=True, slots=True)
class ConsumerGroupEpoch:
    """The group epoch and the hash of the topics it was bumped for; no epoch: the group is gone."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ClassicPart:
    """What is kept of a member that speaks the classic protocol in a group of the new one."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member says of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicPart | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberRecord:
    group_id: str
    member_id: str
    subscription: Subscription | None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch for which the target assignment was computed."""

    group_id: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    group_id: str
    member_id: str
    partitions: Assignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """Where a member is on its way to its target."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    revoking: Assignment


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    group_id: str
    member_id: str
    current: Current | None


ConsumerRecord = ConsumerGroupEpoch | ConsumerMemberRecord | TargetEpoch | TargetAssignment | CurrentAssignment


def encode(record: object) -> JournalRecord:
    match record:
        case ConsumerGroupEpoch(group_id, epoch, metadata_hash):
            tags = {_TAG_METADATA_HASH: Writer.tag().i64(metadata_hash).done()} if metadata_hash else {}
            value = None if epoch is None else _value().i32(epoch).tags(tags).done()
            return JournalRecord(Writer(_GROUP).string(group_id).done(), value)
        case ConsumerMemberRecord(group_id, member_id, subscription):
            return _of_member(_MEMBER, group_id, member_id, subscription, _encode_subscription)
        case TargetEpoch(group_id, epoch):
            value = None if epoch is None else _value().i32(epoch).tags().done()
            return JournalRecord(Writer(_TARGET).string(group_id).done(), value)
        case TargetAssignment(group_id, member_id, partitions):
            return _of_member(
                _TARGET_MEMBER, group_id, member_id, partitions, lambda p: _write_partitions(_value(), p).tags().done()
            )
        case CurrentAssignment(group_id, member_id, current):
            return _of_member(_CURRENT, group_id, member_id, current, _encode_current)
    raise TypeError(f"{record!r} is no record of __consumer_offsets")


def decode(key: Reader, value: bytes | None) -> ConsumerRecord | None:
    if key.version not in (_GROUP, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT):
        return None
    group_id = key.string()
    reader = None if value is None else Reader(value, flexible_from=0)
    if key.version == _GROUP:
        if reader is None:
            return ConsumerGroupEpoch(group_id, None)
        epoch, tags = reader.i32(), reader.tags()
        hashed = tags.get(_TAG_METADATA_HASH)
        return ConsumerGroupEpoch(group_id, epoch, 0 if hashed is None else Reader.tag(hashed).i64())
    if key.version == _TARGET:
        return TargetEpoch(group_id, None if reader is None else reader.i32())
    member_id = key.string()
    if key.version == _MEMBER:
        return ConsumerMemberRecord(group_id, member_id, None if reader is None else _decode_subscription(reader))
    if key.version == _TARGET_MEMBER:
        return TargetAssignment(group_id, member_id, None if reader is None else _read_partitions(reader))
    return CurrentAssignment(group_id, member_id, None if reader is None else _decode_current(reader))


def name_of(key: Reader) -> str | None:
    """What a key speaks of, for people; None if it is none of ours."""
    if key.version in (_GROUP, _TARGET):
        return f"{'epoch' if key.version == _GROUP else 'target epoch'} of group {key.string()!r}"
    what = {_MEMBER: "member", _TARGET_MEMBER: "target of member", _CURRENT: "assignment of member"}.get(key.version)
    if what is None:
        return None
    group_id, member_id = key.string(), key.string()
    return f"{what} {member_id!r} of group {group_id!r}"


def _value() -> Writer:
    return Writer(0, flexible=True)


def _of_member(kind: int, group_id: str, member_id: str, value: T | None, write: Callable[[T], bytes]) -> JournalRecord:
    key = Writer(kind).string(group_id).string(member_id).done()
    return JournalRecord(key, None if value is None else write(value))


def _write_partitions(writer: Writer, partitions: Assignment) -> Writer:
    return writer.array(partitions, lambda w, item: w.uuid(item[0]).array(item[1], Writer.i32).tags())


def _read_partitions(reader: Reader) -> Assignment:
    def topic(r: Reader) -> tuple[UUID, tuple[int, ...]]:
        topic_id, partitions = r.uuid(), tuple(r.array(Reader.i32))
        r.tags()
        return topic_id, partitions

    return tuple(reader.array(topic))


def _encode_subscription(subscription: Subscription) -> bytes:
    writer = _value().string(subscription.instance_id).string(subscription.rack_id)
    writer.string(subscription.client_id).string(subscription.client_host)
    writer.array(subscription.topics, Writer.string).string(subscription.regex)
    writer.i32(subscription.rebalance_timeout_ms).string(subscription.assignor)
    return writer.tags(_classic_tag(subscription.classic)).done()


def _classic_tag(classic: ClassicPart | None) -> dict[int, bytes]:
    if classic is None:
        return {}
    # A nullable struct: one byte says that it is there.
    writer = Writer.tag().i8(1).i32(classic.session_timeout_ms)
    writer.array(classic.protocols, lambda w, item: w.string(item[0]).blob(item[1]).tags())
    return {_TAG_CLASSIC: writer.tags().done()}


def _read_classic(tags: dict[int, bytes]) -> ClassicPart | None:
    content = tags.get(_TAG_CLASSIC)
    if content is None or content[:1] != b"\x01":
        return None
    reader = Reader.tag(content[1:])

    def protocol(r: Reader) -> tuple[str, bytes]:
        name, metadata = r.string(), r.blob()
        r.tags()
        return name, metadata

    return ClassicPart(reader.i32(), tuple(reader.array(protocol)))


def _decode_subscription(reader: Reader) -> Subscription:
    return Subscription(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=tuple(reader.array(Reader.string)),
        regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.i32(),
        assignor=reader.nullable_string(),
        classic=_read_classic(reader.tags()),
    )


def _encode_current(current: Current) -> bytes:
    writer = _value().i32(current.epoch).i32(current.previous_epoch).i8(current.state)
    _write_partitions(writer, current.assigned)
    return _write_partitions(writer, current.revoking).tags().done()


def _decode_current(reader: Reader) -> Current:
    return Current(
        epoch=reader.i32(),
        previous_epoch=reader.i32(),
        state=MemberState(reader.i8()),
        assigned=_read_partitions(reader),
        revoking=_read_partitions(reader),
    )
