"""What leaves the log at its front: DeleteRecords, retention.ms, retention.bytes.

The manifest is written first and is the decision; files go afterwards, and what a crash leaves of them the next open
removes. Only segments below the recovery point's own are deleted, so that point always has its file.
"""

from __future__ import annotations

from atonce.log.appending import roll
from atonce.log.errors import KafkaStorageError, OffsetOutOfRange
from atonce.log.flushing import flush
from atonce.log.layout import INDEXES, LOG, SNAPSHOT, SWAP
from atonce.log.manifest import Manifest
from atonce.log.segment import Segment
from atonce.log.state import LogState

TO_HIGH_WATERMARK = -1


def delete_records(state: LogState, before: int) -> int:
    """See PartitionLog.delete_records."""
    with state.clean_lock, state.flush_lock:
        with state.lock:
            state.check_online()
            target = state.high_watermark if before == TO_HIGH_WATERMARK else before
            if not 0 <= target <= state.high_watermark:
                raise OffsetOutOfRange(
                    f"{state.layout.directory}: records before {target} were to be deleted; the high watermark is "
                    f"{state.high_watermark}"
                )
            if target <= state.log_start_offset:
                return state.log_start_offset
        flush(state)
        return _move_start(state, target)


def enforce_retention(state: LogState) -> int:
    """See PartitionLog.enforce_retention."""
    with state.clean_lock, state.flush_lock:
        with state.lock:
            state.check_online()
            expired = _expired(state)
            if expired and expired[-1] is state.active:
                roll(state, state.clock())
        if not expired and state.segments[0].end_offset > state.log_start_offset:
            return 0
        flush(state)
        start = max(state.log_start_offset, expired[-1].end_offset if expired else 0)
        before = len(state.segments)
        _move_start(state, start)
        return before - len(state.segments)


def retention_due(state: LogState) -> bool:
    """Whether `enforce_retention` would find something to do, without touching a file."""
    with state.lock:
        if state.offline is not None:
            return False
        return bool(_expired(state)) or state.segments[0].end_offset <= state.log_start_offset < state.log_end_offset


def _expired(state: LogState) -> list[Segment]:
    """The segments at the front that retention gives up; nothing above the high watermark or an open transaction."""
    config, now_ms = state.config, state.clock()
    if not config.deletes:
        return []
    excess = sum(s.size for s in state.segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    expired: list[Segment] = []
    for segment in state.segments:
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        old = config.retention_ms >= 0 and now_ms - newest > config.retention_ms
        large = excess - segment.size >= 0 and segment is not state.active
        if segment.size == 0 or segment.end_offset > state.high_watermark or not (old or large):
            break
        excess -= segment.size
        expired.append(segment)
    return expired


def _move_start(state: LogState, target: int) -> int:
    """Durably raise the log start offset, then drop the segments that lie below it."""
    with state.lock:
        segments = state.segments
        unlisted = {segment.base_offset for segment, _ in state.rolled}
        gone = []
        for segment in segments[:-1]:
            if segment.end_offset > target or segment.base_offset >= state.flushed.segment:
                break
            if segment.base_offset in unlisted:
                break
            gone.append(segment)
        old_start = state.log_start_offset
        state.log_start_offset = target
        state.segments = segments[len(gone) :]
        state.cleaned_offset = max(state.cleaned_offset, state.segments[0].base_offset)
        manifest = state.manifest()
    try:
        _save(state, manifest)
    except OSError as error:
        with state.lock:
            state.log_start_offset = old_start
            state.segments = [*gone, *state.segments]
        raise KafkaStorageError(f"{state.layout.directory}: the manifest could not be written ({error})") from error
    for segment in gone:
        state.layout.remove(segment.base_offset, LOG, SWAP, SNAPSHOT, *INDEXES)
    state.layout.keep_reserve()
    with state.lock:
        state.epochs.truncate_start(target)
    return target


def _save(state: LogState, manifest: Manifest) -> None:
    """On a full disk the reserve makes room for the manifest: what frees the disk must not need a free disk."""
    try:
        manifest.save(state.layout)
    except OSError:
        if not state.layout.give_up_reserve():
            raise
        manifest.save(state.layout)
