"""Flush: one fdatasync for everything appended so far, one for the recovery point; now and then a checkpoint.

A checkpoint saves the active segment's indexes and the producers' state, so that a restart scans only what came after,
at most `checkpoint_bytes` (32 MB), whatever the size of the log. It is never needed for correctness, so when the disk
is full it is put off; a failed fsync of the log itself is final.
"""

from __future__ import annotations

import logging

from atonce.log.errors import PartitionOffline
from atonce.log.indexes import SegmentIndexes
from atonce.log.layout import SNAPSHOT
from atonce.log.segment import Segment
from atonce.log.snapshot import Snapshot
from atonce.log.state import LogState

logger = logging.getLogger(__name__)


def flush(state: LogState, *, checkpoint: bool = False) -> int:
    """See PartitionLog.flush. `checkpoint` also saves indexes and producers, whatever the distance."""
    with state.flush_lock:
        with state.lock:
            state.check_online()
            target = state.end_point
            active = state.active
            rolled = state.rolled[:]
            checkpoint = checkpoint or checkpoint_due(state)
            saved = (active, active.loaded_indexes().copy(), state.snapshot()) if checkpoint else None
        if target != state.flushed or rolled:
            if state.flushed.offset == state.log_start_offset:
                state.layout.keep_reserve()  # from now on there is something that retention may have to remove
            _sync_log(state, active, [segment for segment, _ in rolled])
            try:
                state.point_file.advance(target)
            except OSError as error:
                raise _offline(state, "the sync of the recovery point", error) from error
            with state.lock:
                state.producers.high_watermark_moved(state.high_watermark)
                state.last_flush_ms = state.clock()
        if rolled or saved is not None:
            _save(state, rolled, saved)
        return target.offset


def save_checkpoint(state: LogState, segment: Segment, indexes: SegmentIndexes, snapshot: Snapshot) -> None:
    """Everything below the snapshot is synced already; its name is durable when this returns."""
    indexes.save(state.layout, segment.base_offset, snapshot.position)
    snapshot.save(state.layout)
    state.layout.sync()
    state.checkpoint_offset = snapshot.offset


def remove_old_snapshots(state: LogState) -> None:
    """Keep those at the start of a segment, from which its indexes can be rebuilt, and the newest."""
    keep = {segment.base_offset for segment in state.segments} | {state.checkpoint_offset}
    for offset in state.layout.offsets(SNAPSHOT):
        if offset not in keep:
            state.layout.remove(offset, SNAPSHOT)


def checkpoint_due(state: LogState) -> bool:
    """Whether a restart would have more to scan than it should."""
    return (
        state.bytes_since_checkpoint >= state.config.checkpoint_bytes
        or state.batches_since_checkpoint >= state.config.checkpoint_batches
    )


def _sync_log(state: LogState, active: Segment, rolled: list[Segment]) -> None:
    try:
        for segment in rolled:
            segment.file.sync()
        active.file.sync()
        if rolled:
            state.layout.sync()
    except OSError as error:
        raise _offline(state, f"fsync of {active.file.path}", error) from error


def _offline(state: LogState, what: str, error: OSError) -> PartitionOffline:
    offline = state.go_offline(what, error)
    logger.error("%s", offline)
    return offline


def _save(
    state: LogState,
    rolled: list[tuple[Segment, Snapshot]],
    saved: tuple[Segment, SegmentIndexes, Snapshot] | None,
) -> None:
    """List rolled segments, then save the checkpoint. If the disk is full the next flush tries again."""
    try:
        for segment, snapshot in rolled:
            segment.loaded_indexes().save(state.layout, segment.base_offset, segment.size)
            snapshot.save(state.layout)
        if rolled:
            state.layout.sync()
            with state.lock:
                done = {segment.base_offset for segment, _ in rolled}
                state.rolled = [entry for entry in state.rolled if entry[0].base_offset not in done]
                manifest = state.manifest()
            try:
                manifest.save(state.layout)
            except OSError:
                with state.lock:
                    state.rolled = [*rolled, *state.rolled]
                raise
            state.checkpoint_offset = max(state.checkpoint_offset, rolled[-1][1].offset)
        if saved is not None:
            save_checkpoint(state, *saved)
        remove_old_snapshots(state)
        with state.lock:
            state.bytes_since_checkpoint = state.batches_since_checkpoint = 0
    except OSError as error:
        logger.warning("%s: the checkpoint is put off: %s", state.layout.directory, error)
