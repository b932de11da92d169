"""Produce on the wire, read and written by hand: the records of a request stay where they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from uuid import UUID

from atonce.broker.messages import ErrorCode, Raw
from atonce.broker.shape import Budget, MalformedRequest, read_uvarint

FIRST_FLEXIBLE = 9
FIRST_TOPIC_ID = 13

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS = Struct(">hi")
_ANSWER = Struct(">ihqqq")
_ANSWER_V4 = Struct(">ihqq")
_NO_ERRORS_FLEXIBLE = b"\x01"
_NO_ERRORS = b"\0\0\0\0"


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    index: int
    records: memoryview | None


@dataclass(frozen=True, slots=True)
class TopicRecords:
    topic: str | UUID
    partitions: list[PartitionRecords]


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    index: int
    error: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None


class _Reader:
    """A position in a frame. Every length is checked before it is used."""

    __slots__ = ("_budget", "_data", "_flexible", "position")

    def __init__(self, data: memoryview, position: int, flexible: bool) -> None:
        self._data = data
        self.position = position
        self._flexible = flexible
        self._budget = Budget()

    def _length(self, legacy: Struct) -> int:
        if self._flexible:
            value, self.position = read_uvarint(self._data, self.position)  # type: ignore[arg-type]
            return value - 1
        (length,) = legacy.unpack_from(self._data, self.position)
        self.position += legacy.size
        return int(length)

    def _bytes(self, length: int) -> memoryview | None:
        if length < -1 or length > len(self._data) - self.position:
            raise MalformedRequest(f"{length} bytes announced, {len(self._data) - self.position} left")
        if length == -1:
            return None
        start = self.position
        self.position += length
        return self._data[start : self.position]

    def string(self) -> str | None:
        found = self._bytes(self._length(_INT16))
        return None if found is None else bytes(found).decode()

    def records(self) -> memoryview | None:
        return self._bytes(self._length(_INT32))

    def count(self, smallest: int) -> int:
        count = self._length(_INT32)
        if count < 0 or count * smallest > len(self._data) - self.position:
            raise MalformedRequest(f"{count} elements announced, {len(self._data) - self.position} bytes left")
        self._budget.take(count)
        return count

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self.position)
        self.position += 4
        return int(value)

    def acks(self) -> tuple[int, int]:
        acks, timeout_ms = _ACKS.unpack_from(self._data, self.position)
        self.position += 6
        return acks, timeout_ms

    def uuid(self) -> UUID:
        found = self._bytes(16)
        return UUID(bytes=bytes(found or b""))

    def tags(self) -> None:
        if self._flexible:
            count, self.position = read_uvarint(self._data, self.position)  # type: ignore[arg-type]
            self._budget.take(count)
            for _ in range(count):
                _, self.position = read_uvarint(self._data, self.position)  # type: ignore[arg-type]
                self._bytes(self._length(_INT32) + 1)


def read_produce(version: int, frame: bytes, position: int) -> ProduceRequest:
    """Raises MalformedRequest unless the frame holds a whole request; bytes after it are ignored, as Kafka does."""
    reader = _Reader(memoryview(frame), position, version >= FIRST_FLEXIBLE)
    try:
        transactional_id = reader.string()
        acks, timeout_ms = reader.acks()
        # Named twice, the last one counts, as in Kafka: its records are appended, and it is answered once.
        topics: dict[str | UUID, dict[int, PartitionRecords]] = {}
        for _ in range(reader.count(4)):
            topic: str | UUID | None = reader.uuid() if version >= FIRST_TOPIC_ID else reader.string()
            if topic is None:
                raise MalformedRequest("a topic without a name")
            partitions = topics.setdefault(topic, {})
            for _ in range(reader.count(5)):
                index = reader.int32()
                partitions[index] = PartitionRecords(index, reader.records())
                reader.tags()
            reader.tags()
        reader.tags()
    except (StructError, IndexError, ValueError) as error:
        raise MalformedRequest(f"Produce v{version}: {error}") from error
    named = [TopicRecords(topic, list(partitions.values())) for topic, partitions in topics.items()]
    return ProduceRequest(transactional_id, acks, timeout_ms, named)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_count(count: int) -> bytes:
    return uvarint(count + 1)


def write_topic(version: int, topic: str | UUID, flexible: bool, by_id: bool) -> bytes:
    if by_id:
        return topic.bytes if isinstance(topic, UUID) else b"\0" * 16
    name = str(topic).encode()
    return uvarint(len(name) + 1) + name if flexible else _INT16.pack(len(name)) + name


def write_produce(version: int, topics: Sequence[tuple[str | UUID, Sequence[PartitionAnswer]]]) -> Raw:
    flexible = version >= FIRST_FLEXIBLE
    count = compact_count if flexible else _INT32.pack
    out = [count(len(topics))]
    for topic, answers in topics:
        out.append(write_topic(version, topic, flexible, version >= FIRST_TOPIC_ID))
        out.append(count(len(answers)))
        for one in answers:
            if version >= 5:
                fixed = (one.index, one.error, one.base_offset, one.log_append_time_ms, one.log_start_offset)
                out.append(_ANSWER.pack(*fixed))
            else:
                out.append(_ANSWER_V4.pack(one.index, one.error, one.base_offset, one.log_append_time_ms))
            if version >= 8:
                out.append(_NO_ERRORS_FLEXIBLE if flexible else _NO_ERRORS)
                out.append(_nullable(one.message, flexible))
            if flexible:
                out.append(b"\0")
        if flexible:
            out.append(b"\0")
    out.append(_INT32.pack(0))
    if flexible:
        out.append(b"\0")
    return Raw([b"".join(out)])


def _nullable(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()[:1000]
    return uvarint(len(encoded) + 1) + encoded if flexible else _INT16.pack(len(encoded)) + encoded
