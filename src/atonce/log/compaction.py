"""Compaction: rewrite the sealed segments with what `cleaning.py` keeps, and swap the new files in.

Crash by crash: `.log.cleaned` files are thrown away; once synced they are renamed to `.log.swap`; the manifest that
lists them as swapped is the commit; after it the old files go and `.swap` becomes `.log`, now or at the next open.
"""

from __future__ import annotations

import contextlib
import logging

from atonce.log.cleaning import Cleaner, TransactionsSeen
from atonce.log.errors import KafkaStorageError
from atonce.log.flushing import remove_old_snapshots
from atonce.log.layout import CLEANED, INDEXES, LOG, SWAP
from atonce.log.replay import rebuilt_indexes
from atonce.log.results import AbortedTxn
from atonce.log.segment import MAX_RELATIVE_OFFSET, BadBatch, Segment
from atonce.log.state import LogState
from atonce.log.validation import most_unpacked
from atonce.records.batch import InvalidBatch, read_header
from atonce.records.compression import DecompressionFailed
from atonce.records.record import iter_records

logger = logging.getLogger(__name__)


def compact(state: LogState, *, force: bool) -> bool:
    """See PartitionLog.compact."""
    with state.clean_lock:
        with state.lock:
            state.check_online()
            segments = _cleanable(state)
            if not segments or not _worth_it(state, segments, force):
                return False
            producers = dict(state.producers.entries)
            first_dirty = max(state.cleaned_offset, state.log_start_offset)
        aborted = [txn for segment in state.segments for txn in segment.loaded_indexes().aborted]
        cleaner = Cleaner(
            _newest_offsets(segments, first_dirty, aborted, most_unpacked(state.config)),
            segments[-1].end_offset,
            TransactionsSeen.of(aborted),
            producers,
            state.clock(),
            state.config.delete_retention_ms,
            most_unpacked(state.config),
        )
        try:
            cleaned = [_clean_group(state, cleaner, group) for group in _groups(segments, state.config.segment_bytes)]
            state.layout.sync()
        except OSError as error:
            _discard(state)
            raise KafkaStorageError(f"{state.layout.directory}: compaction was given up ({error})") from error
        _swap_in(state, segments, cleaned)
        return True


def compaction_due(state: LogState) -> bool:
    """Whether `compact` would find something to do, without touching a file."""
    with state.lock:
        segments = [] if state.offline is not None else _cleanable(state)
        return bool(segments) and _worth_it(state, segments, force=False)


def _cleanable(state: LogState) -> list[Segment]:
    """Sealed, listed, wholly below the last stable offset, and older than `min.compaction.lag.ms`."""
    if not state.config.compacts:
        return []
    unlisted = {segment.base_offset for segment, _ in state.rolled}
    stable, oldest = state.last_stable_offset, state.clock() - state.config.min_compaction_lag_ms
    found = []
    for segment in state.segments[:-1]:
        young = state.config.min_compaction_lag_ms > 0 and segment.max_timestamp > oldest
        if segment.base_offset in unlisted or segment.end_offset > stable or young:
            break
        found.append(segment)
    return found


def _worth_it(state: LogState, segments: list[Segment], force: bool) -> bool:
    dirty = sum(segment.size for segment in segments if segment.end_offset > state.cleaned_offset)
    total = sum(segment.size for segment in segments)
    if force:
        return total > 0
    return dirty > 0 and dirty / total >= state.config.min_cleanable_dirty_ratio


def _newest_offsets(
    segments: list[Segment], first_dirty: int, aborted: list[AbortedTxn], most_bytes: int
) -> dict[bytes, int]:
    """Of every key in the dirty part, its newest offset; aborted records do not count, nor what cannot be unpacked."""
    newest: dict[bytes, int] = {}
    transactions = TransactionsSeen.of(aborted)
    for segment in segments:
        for position, header in segment.walk(0):
            if header.is_control:
                transactions.is_marker_of_nothing(header, memoryview(segment.read_batch(position, header)))
            elif not transactions.is_aborted(header) and header.last_offset >= first_dirty and header.record_count:
                batch = segment.read_batch(position, header)
                try:
                    found = {record.key: record.offset for record in iter_records(batch, limit=most_bytes)}
                except (InvalidBatch, DecompressionFailed) as error:
                    logger.warning("%s at offset %d stays as it is: %s", segment.file.path, header.base_offset, error)
                    continue
                newest.update((key, at) for key, at in found.items() if key is not None and at >= first_dirty)
    return newest


def _groups(segments: list[Segment], segment_bytes: int) -> list[list[Segment]]:
    """Neighbours that fit into one segment are merged."""
    groups: list[list[Segment]] = []
    for segment in segments:
        group = groups[-1] if groups else None
        if (
            group is not None
            and sum(member.size for member in group) + segment.size <= segment_bytes
            and segment.end_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            group.append(segment)
        else:
            groups.append([segment])
    return groups


def _clean_group(state: LogState, cleaner: Cleaner, group: list[Segment]) -> Segment:
    """One new segment in a `.log.swap` file, synced; its name is not."""
    layout, base = state.layout, group[0].base_offset
    path = layout.offset_path(base, CLEANED)
    layout.storage.remove(path)
    file = layout.storage.open(path, create=True)
    fresh = Segment(layout, base, file, 0, base, group[0].created_ms, state.config.index_interval_bytes)
    for segment in group:
        try:
            for _position, header, batch in segment.scan(0, segment.size, segment.base_offset, gaps=True):
                kept = cleaner.clean(header, batch)
                if kept is not None:
                    now = read_header(kept)
                    file.pwrite(fresh.size, [kept])
                    fresh.note_batch(now, now.base_offset, fresh.size, now.size)
        except BadBatch as bad:
            raise segment.damaged(bad.position, bad.reason) from bad
    file.sync()
    end_offset = group[-1].end_offset
    kept_txns = [txn for txn in cleaner.transactions.kept if base <= txn.last_offset < end_offset]
    fresh.loaded_indexes().aborted = sorted(kept_txns, key=lambda txn: txn.last_offset)
    fresh.end_offset = end_offset
    fresh.swap = True
    fresh.rebuild = lambda lost: rebuilt_indexes(lost, lost.size, state.segments)
    layout.storage.rename(path, layout.offset_path(base, SWAP))
    return fresh


def _swap_in(state: LogState, old: list[Segment], cleaned: list[Segment]) -> None:
    layout = state.layout
    with state.flush_lock:
        with state.lock:
            before, cleaned_before = state.segments, state.cleaned_offset
            gone = {segment.base_offset for segment in old}
            state.segments = [*cleaned, *(s for s in before if s.base_offset not in gone)]
            state.cleaned_offset = old[-1].end_offset
            manifest = state.manifest()
        try:
            manifest.save(layout)
        except OSError as error:
            with state.lock:
                state.segments, state.cleaned_offset = before, cleaned_before
            raise KafkaStorageError(f"{layout.directory}: compaction was given up ({error})") from error
        try:
            for segment in old:
                layout.remove(segment.base_offset, *INDEXES)
            for segment in cleaned:
                log_path = layout.offset_path(segment.base_offset, LOG)
                layout.storage.rename(layout.offset_path(segment.base_offset, SWAP), log_path)
                segment.file = layout.storage.open(log_path)
                segment.loaded_indexes().save(layout, segment.base_offset, segment.size)
            kept = {segment.base_offset for segment in cleaned}
            for base in gone - kept:
                layout.remove(base, LOG)
            layout.sync()
            with state.lock:
                for segment in cleaned:
                    segment.swap = False
                manifest = state.manifest()
            manifest.save(layout)
            remove_old_snapshots(state)
        except OSError as error:
            logger.warning("%s: compaction is finished at the next start: %s", layout.directory, error)


def _discard(state: LogState) -> None:
    with contextlib.suppress(OSError):
        for suffix in (CLEANED, SWAP):
            for base in state.layout.offsets(suffix):
                state.layout.remove(base, suffix)
