"""What consumers write inside JoinGroup and SyncGroup: Kafka's embedded consumer protocol, versions 0 to 3."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from atonce.coordinator.wire import Reader, Writer
from atonce.errors import AtOnceError

NAME = "consumer"

# Partitions by topic name.
Named = tuple[tuple[str, tuple[int, ...]], ...]


class NotUnderstood(AtOnceError):
    """A client's own format: only its own members know what it means."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    version: int
    topics: tuple[str, ...]
    owned: Named = ()
    """What the member holds while it joins; an eager one has given everything back and says nothing."""
    rack_id: str | None = None


def read_subscription(data: bytes) -> MemberSubscription:
    try:
        reader = Reader(data)
        topics = tuple(reader.array(Reader.string))
        reader.blob()  # the assignor's own data
        owned = _read_named(reader) if reader.version >= 1 else ()
        if reader.version >= 2:
            reader.i32()  # the generation in which it got what it owns
        rack_id = reader.nullable_string() if reader.version >= 3 else None
        return MemberSubscription(reader.version, topics, owned, rack_id)
    except (AtOnceError, UnicodeDecodeError) as error:
        raise NotUnderstood(f"a subscription of {len(data)} bytes cannot be read: {error}") from error


def read_assignment(data: bytes) -> Named:
    """Empty bytes: nothing was assigned."""
    if not data:
        return ()
    try:
        return _read_named(Reader(data))
    except (AtOnceError, UnicodeDecodeError) as error:
        raise NotUnderstood(f"an assignment of {len(data)} bytes cannot be read: {error}") from error


def write_assignment(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    writer = Writer(version)
    writer.array(partitions, lambda w, item: w.string(item[0]).array(item[1], Writer.i32))
    return writer.blob(None).done()


def _read_named(reader: Reader) -> Named:
    return tuple(reader.array(lambda r: (r.string(), tuple(r.array(Reader.i32)))))
