"""Reads: byte ranges by offset, aborted transactions in them, and look-ups by timestamp."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from atonce.log.errors import OffsetOutOfRange
from atonce.log.recovery_point import RecoveryPoint
from atonce.log.results import FileSlice, Isolation, ReadResult, TimestampOffset
from atonce.log.segment import Segment
from atonce.log.state import LogState
from atonce.log.validation import most_unpacked
from atonce.records.batch import BatchHeader, InvalidBatch
from atonce.records.compression import DecompressionFailed
from atonce.records.record import Record, iter_records

# What was read to verify it is passed on as it is, unless that much may have to wait for its reader.
_KEPT_BYTES = 64 * 1024


def read(
    state: LogState,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one_batch: bool,
    beyond_high_watermark: bool,
) -> ReadResult:
    """See PartitionLog.read."""
    with state.lock:
        state.check_online()
        segments = state.segments
        start, end = state.log_start_offset, state.end_point
        high_watermark, stable = state.high_watermark, state.last_stable_offset
        flushed = state.flushed
    if not start <= offset <= end.offset:
        raise OffsetOutOfRange(
            f"{state.layout.directory}: offset {offset} was asked for; the log holds {start} to {end.offset}"
        )
    upper = end.offset if beyond_high_watermark else high_watermark
    if isolation is Isolation.READ_COMMITTED:
        upper = min(upper, stable)
    slices: tuple[FileSlice, ...] = ()
    aborted: tuple[tuple[int, int], ...] = ()
    found = _find(segments, offset) if offset < upper else None
    if found is not None:
        _check_place(segments[found[0]], found[1], found[2], offset, state.cleaned_offset)
    if found is not None and found[2].base_offset < upper:
        index, position, header = found
        segment = segments[index]
        limit = _end_position(segment, upper, end, flushed)
        length = min(max_bytes, limit - position)
        if length < header.size and min_one_batch:
            length = header.size
        if length >= header.size:
            piece = _slice(state, segment, position, length, header)
            slices = (piece,)
            if isolation is Isolation.READ_COMMITTED:
                bound = min(upper, _offset_bound(segment, position + piece.length))
                aborted = _aborted(segments[index:], offset, bound)
    return ReadResult(
        slices=slices,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted=aborted,
    )


def offset_for_timestamp(state: LogState, timestamp_ms: int) -> TimestampOffset | None:
    """See PartitionLog.offset_for_timestamp."""
    with state.lock:
        state.check_online()
        segments, start = state.segments, state.log_start_offset
    for segment in segments:
        if segment.max_timestamp < timestamp_ms or segment.end_offset <= start:
            continue
        floor = segment.base_offset + segment.loaded_indexes().floor_offset(timestamp_ms)
        for position, header in _batches_from(segment, max(floor, start)):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= start:
                for record in _records(state, segment, position, header):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                        return TimestampOffset(record.timestamp_ms, record.offset, state.epochs.epoch_of(record.offset))
    return None


def max_timestamp(state: LogState) -> TimestampOffset | None:
    """See PartitionLog.max_timestamp."""
    with state.lock:
        state.check_online()
        segments, start = state.segments, state.log_start_offset
    best = max(segments, key=lambda segment: segment.max_timestamp)
    if best.max_timestamp < 0:
        return None
    for position, header in _batches_from(best, best.base_offset + best.loaded_indexes().max_timestamp_offset):
        if header.max_timestamp == best.max_timestamp:
            for record in _records(state, best, position, header):
                if record.timestamp_ms == best.max_timestamp and record.offset >= start:
                    return TimestampOffset(record.timestamp_ms, record.offset, state.epochs.epoch_of(record.offset))
    return None


def _find(segments: Sequence[Segment], offset: int) -> tuple[int, int, BatchHeader] | None:
    """(segment's index, position, header) of the batch that holds the offset or follows it."""
    index = max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
    while index < len(segments):
        found = segments[index].find(offset)
        if found is not None:
            return index, *found
        index += 1
    return None


def _check_place(segment: Segment, position: int, header: BatchHeader, offset: int, cleaned_offset: int) -> None:
    """No checksum covers a base offset: where nothing was cleaned, the batch that is found holds the offset."""
    if header.base_offset > max(offset, segment.base_offset) and segment.base_offset >= cleaned_offset:
        raise segment.damaged(position, f"a batch at offset {header.base_offset} where {offset} comes next")


def _end_position(segment: Segment, upper: int, end: RecoveryPoint, flushed: RecoveryPoint) -> int:
    """Where the offset `upper`, which stands between two batches, lies in this segment."""
    for known in (flushed, end):
        if upper == known.offset and segment.base_offset == known.segment:
            return known.position
    found = segment.find(upper)
    return segment.size if found is None else found[0]


def _slice(state: LogState, segment: Segment, position: int, length: int, first: BatchHeader) -> FileSlice:
    """A byte range whose bytes are known to be good: verified now, if they were not."""
    good = segment.verified_until(position) - position
    if good >= first.size:
        return FileSlice(segment.file, position, min(length, good))
    data = segment.read_verified(position, length, gaps=segment.base_offset < state.cleaned_offset)
    with state.lock:
        segment.mark_verified(position, position + len(data))
    return FileSlice(segment.file, position, len(data), data if len(data) <= _KEPT_BYTES else None)


def _offset_bound(segment: Segment, position: int) -> int:
    """An offset at or above everything before `position`, from the index alone."""
    indexes = segment.loaded_indexes()
    found = bisect_left(indexes.positions, position)
    if found < len(indexes.positions):
        return segment.base_offset + indexes.offsets[found]
    return segment.end_offset


def _aborted(segments: Sequence[Segment], offset: int, bound: int) -> tuple[tuple[int, int], ...]:
    """Aborted transactions that overlap [offset, bound). Their markers may stand in later segments."""
    found = []
    for segment in segments:
        for txn in segment.loaded_indexes().aborted:
            if txn.last_offset >= offset and txn.first_offset < bound:
                found.append((txn.producer_id, txn.first_offset))
            if txn.last_stable_offset >= bound:
                return tuple(found)
    return tuple(found)


def _batches_from(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    found = segment.find(offset)
    return segment.walk(found[0]) if found is not None else iter(())


def _records(state: LogState, segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    """One by one; what cannot be unpacked counts as one record with the batch's time, at its first offset."""
    if header.record_count:
        try:
            yield from iter_records(segment.read_batch(position, header), limit=most_unpacked(state.config))
        except (InvalidBatch, DecompressionFailed):
            yield Record(header.base_offset, header.max_timestamp, None, None, ())
