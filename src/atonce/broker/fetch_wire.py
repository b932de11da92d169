"""The answer to Fetch on the wire, written by hand: records are passed on as they were read, or before they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from uuid import UUID

from atonce.broker.messages import ErrorCode, Raw
from atonce.broker.produce_wire import compact_count, write_topic
from atonce.broker.sending import Part
from atonce.log.results import EpochEnd

FIRST_FLEXIBLE = 12
FIRST_TOPIC_ID = 13
_FIRST_SESSION = 7
_FIRST_REPLICA = 11

_INT32 = Struct(">i")
_HEAD = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
_PARTITION_V4 = Struct(">ihqq")
_ABORTED = Struct(">qq")
_NO_REPLICA = _INT32.pack(-1)
# One tag, number 0, of 13 bytes: epoch, end offset, and no tags of its own.
_DIVERGING = Struct(">BBBiqB")


@dataclass(frozen=True, slots=True)
class PartitionData:
    index: int
    error: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    records: Sequence[Part] = ()
    diverging: EpochEnd | None = None


def write_fetch(
    version: int,
    error: ErrorCode,
    session_id: int,
    topics: Sequence[tuple[str | UUID, Sequence[PartitionData]]],
) -> Raw:
    flexible = version >= FIRST_FLEXIBLE
    count = compact_count if flexible else _INT32.pack
    parts: list[Part] = []
    out = bytearray(_HEAD.pack(0, error, session_id) if version >= _FIRST_SESSION else _INT32.pack(0))
    out += count(len(topics))
    for topic, partitions in topics:
        out += write_topic(version, topic, flexible, version >= FIRST_TOPIC_ID)
        out += count(len(partitions))
        for one in partitions:
            if version >= 5:
                out += _PARTITION.pack(
                    one.index, one.error, one.high_watermark, one.last_stable_offset, one.log_start_offset
                )
            else:
                out += _PARTITION_V4.pack(one.index, one.error, one.high_watermark, one.last_stable_offset)
            out += count(len(one.aborted))
            for producer_id, first_offset in one.aborted:
                out += _ABORTED.pack(producer_id, first_offset)
                if flexible:
                    out += b"\0"
            if version >= _FIRST_REPLICA:
                out += _NO_REPLICA
            out += count(sum(len(piece) for piece in one.records))
            if one.records:
                parts.append(bytes(out))
                parts.extend(one.records)
                out = bytearray()
            if flexible:
                out += b"\0" if one.diverging is None else _diverging(one.diverging)
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    parts.append(bytes(out))
    return Raw(parts)


def _diverging(end: EpochEnd) -> bytes:
    return _DIVERGING.pack(1, 0, 13, end.leader_epoch, end.end_offset, 0)
