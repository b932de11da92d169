"""What a batch in the log did to producers, computed again: recovery, and indexes that were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atonce.log.indexes import SegmentIndexes
from atonce.log.producer_state import after_data, after_marker
from atonce.log.producers import Producers
from atonce.log.results import AbortedTxn
from atonce.log.segment import Segment
from atonce.log.snapshot import Snapshot
from atonce.log.storage import Buffer
from atonce.records.batch import BatchHeader
from atonce.records.record import read_marker


def replay_batch(
    producers: Producers, header: BatchHeader, read: Callable[[], Buffer], now_ms: int
) -> AbortedTxn | None:
    """The same change as the append made, without the checks that it passed then. `read` gives a marker's bytes."""
    if not header.has_producer:
        return None
    entry = producers.get(header.producer_id)
    if not header.is_control:
        producers.put(after_data(entry, header, header.base_offset, now_ms))
        return None
    marker = read_marker(read()) if header.record_count else None
    if marker is None:
        return None
    after = after_marker(entry, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp, now_ms)
    return producers.complete(after, header.last_offset, commit=marker.commit)


def rebuilt_indexes(segment: Segment, end: int, segments: Sequence[Segment]) -> SegmentIndexes:
    """The indexes of a segment's first `end` bytes from its batches.

    An aborted transaction may have begun in an earlier segment, so producers are replayed from the nearest snapshot.
    """
    earlier = [other for other in segments if other.base_offset < segment.base_offset]
    producers = Producers()
    start = 0
    for index, candidate in reversed(list(enumerate([*earlier, segment]))):
        snapshot = Snapshot.load(segment.layout, candidate.base_offset)
        if snapshot is not None and (snapshot.segment, snapshot.position) == (candidate.base_offset, 0):
            producers, start = Producers.restore(snapshot.producers), index
            break
    for other in earlier[start:]:
        for position, header in other.walk(0):
            replay_batch(producers, header, lambda p=position, h=header, s=other: s.read_batch(p, h), 0)  # type: ignore[misc]
    scratch = Segment(
        segment.layout, segment.base_offset, segment.file, 0, segment.base_offset, 0, segment.index_interval_bytes
    )
    indexes = scratch.loaded_indexes()
    for position, header in segment.walk(0, end):
        scratch.note_batch(header, header.base_offset, position, header.size)
        aborted = replay_batch(producers, header, lambda p=position, h=header: segment.read_batch(p, h), 0)  # type: ignore[misc]
        if aborted is not None:
            indexes.aborted.append(aborted)
    return indexes
