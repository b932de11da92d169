"""Open a log after anything: clean close, SIGKILL, power cut.

1. What the manifest lists must be there, at full length. What it does not list below the tail is left-over.
2. From the newest usable snapshot on, every batch is verified and replayed into producers, epochs and indexes.
3. A bad batch below the recovery point (or below a snapshot or a sealed segment's end, which prove as much) is damage:
   refused with file and position. Beyond it, it is a torn tail: cut there, later segments with it.
4. What was kept beyond the recovery point is written again and synced: after a failed fsync the kernel may show bytes
   that are not on disk. Only then does the recovery point move, so a crash during recovery changes nothing.

Without a recovery point or a manifest (a directory from elsewhere) every batch of the log must be whole.
"""

from __future__ import annotations

import logging

from atonce.errors import CorruptLogError
from atonce.log.config import LogConfig
from atonce.log.epochs import LeaderEpochs
from atonce.log.flushing import remove_old_snapshots, save_checkpoint
from atonce.log.indexes import SegmentIndexes
from atonce.log.layout import CLEANED, INDEXES, LOG, SNAPSHOT, SWAP, TEMPORARY, Layout
from atonce.log.manifest import Manifest, SealedSegment
from atonce.log.producers import Producers
from atonce.log.recovery_point import RecoveryPoint, RecoveryPointFile
from atonce.log.replay import rebuilt_indexes, replay_batch
from atonce.log.segment import SCAN_BYTES, BadBatch, Segment
from atonce.log.snapshot import Snapshot
from atonce.log.state import Clock, LogState
from atonce.log.storage import Storage

logger = logging.getLogger(__name__)

UNKNOWN_END = 2**63 - 1
# So much is replayed again at the next start rather than saved at this one.
_REPLAYED_BYTES = 256 * 1024


def open_log(storage: Storage, directory: str, config: LogConfig, clock: Clock) -> LogState:
    """Create or recover; see PartitionLog.open."""
    layout = Layout(storage, directory)
    manifest = Manifest.load(layout)
    point_file = RecoveryPointFile.open(layout)
    bases = layout.offsets(LOG)
    holds_data = bool(manifest and manifest.segments) or any(
        storage.open(layout.offset_path(base, LOG)).size() for base in bases
    )
    nothing_acknowledged = point_file is None or point_file.point.position == 0
    if not holds_data and nothing_acknowledged and (manifest is None or point_file is None):
        start = max([*bases, point_file.point.offset if point_file else 0])
        return _create(layout, config, clock, start, manifest)
    return _Recovery(layout, config, clock, manifest, point_file).run()


def prepare_log(storage: Storage, directory: str) -> None:
    """The files of a new log, unsynced: for many at once, which are opened after one sync of everything."""
    layout = Layout(storage, directory)
    storage.make_directory(directory)
    RecoveryPointFile.write(layout, RecoveryPoint(0, 0, 0))
    Manifest().write(layout)


def _create(layout: Layout, config: LogConfig, clock: Clock, start: int, manifest: Manifest | None) -> LogState:
    """A new log, or one whose creation was interrupted: it holds nothing yet."""
    layout.storage.make_directory(layout.directory)
    layout.storage.sync_directory(layout.directory.rpartition("/")[0])
    start = max(start, manifest.log_start_offset if manifest else 0)
    for base in layout.offsets(LOG):
        layout.remove(base, LOG)
    point_file = RecoveryPointFile.create(layout, RecoveryPoint(start, start, 0))
    segment = Segment.create(layout, start, clock(), config.index_interval_bytes)
    state = LogState(layout, config, clock, [segment], point_file, log_start_offset=start, checkpoint_offset=start)
    state.manifest().save(layout)
    return state


class _Recovery:
    """One run over one directory."""

    def __init__(
        self,
        layout: Layout,
        config: LogConfig,
        clock: Clock,
        manifest: Manifest | None,
        point_file: RecoveryPointFile | None,
    ) -> None:
        first = min(layout.offsets(LOG), default=0)
        self.layout = layout
        self.config = config
        self.clock = clock
        self.strict = manifest is None or point_file is None
        self.manifest = manifest or Manifest(first_segment=first, log_start_offset=first)
        self.point_file = point_file
        self.sealed: list[Segment] = []
        self.tail: list[Segment] = []
        self.cut = False
        self.names_changed = False
        # The state at the start of each segment after the first of the tail: what is before it may be deleted one day.
        self.starts: list[Snapshot] = []
        self.replayed_bytes = 0

    def run(self) -> LogState:
        self._complete_swaps()
        self.sealed = [self._open_sealed(entry) for entry in self.manifest.segments]
        self.tail = self._open_tail()
        snapshot, proven = self._newest_snapshot()
        point = max(self._believed_point(), proven)
        state = self._replay(snapshot, point)
        self._settle(state, point)
        return state

    # -- what should be there

    def _complete_swaps(self) -> None:
        """Finish a compaction that the manifest has committed; throw away one that it has not."""
        storage, layout = self.layout.storage, self.layout
        for name in storage.list(layout.directory):
            if name.endswith((TEMPORARY, CLEANED)):
                storage.remove(layout.path(name))
                self.names_changed = True
        listed = {entry.base_offset for entry in self.manifest.segments if entry.swap}
        for base in listed:
            layout.remove(base, *INDEXES)
        for base in layout.offsets(SWAP):
            self.names_changed = True
            if base in listed:
                storage.rename(layout.offset_path(base, SWAP), layout.offset_path(base, LOG))
            else:
                layout.remove(base, SWAP)

    def _open_sealed(self, entry: SealedSegment) -> Segment:
        path = self.layout.offset_path(entry.base_offset, LOG)
        try:
            file = self.layout.storage.open(path)
        except FileNotFoundError:
            raise self._corrupt(path, 0, f"a segment of {entry.size} bytes is missing") from None
        if file.size() != entry.size:
            raise self._corrupt(path, min(file.size(), entry.size), f"it has {file.size()} bytes, not {entry.size}")
        segment = self._segment(entry.base_offset)
        segment.size, segment.end_offset, segment.max_timestamp = entry.size, entry.end_offset, entry.max_timestamp
        segment.indexes = None
        return segment

    def _segment(self, base: int) -> Segment:
        file = self.layout.storage.open(self.layout.offset_path(base, LOG))
        return Segment(self.layout, base, file, 0, base, self.clock(), self.config.index_interval_bytes)

    def _open_tail(self) -> list[Segment]:
        """The segments after the last sealed one, in order; left-overs of retention and compaction are removed."""
        listed = {segment.base_offset for segment in self.sealed}
        begin = self.sealed[-1].end_offset if self.sealed else self.manifest.first_segment
        tail = []
        for base in self.layout.offsets(LOG):
            if base < begin and base not in listed:
                self.layout.remove(base, LOG, SNAPSHOT, *INDEXES)
                self.names_changed = True
            elif base not in listed:
                tail.append(self._segment(base))
        if not tail:
            self.names_changed = True
            tail.append(Segment.create(self.layout, begin, self.clock(), self.config.index_interval_bytes))
        if tail[0].base_offset != begin:
            raise self._corrupt(self.layout.offset_path(begin, LOG), 0, "the segment is missing")
        return tail

    def _believed_point(self) -> RecoveryPoint:
        """The recovery point, if the files reach it. A sealed segment is synced to its end."""
        proven = RecoveryPoint(0, 0, 0)
        if self.sealed:
            last = self.sealed[-1]
            proven = RecoveryPoint(last.end_offset, last.base_offset, last.size)
        if self.point_file is None:
            return RecoveryPoint(UNKNOWN_END, UNKNOWN_END, 0)
        point = self.point_file.point
        if point.segment <= proven.segment and self.sealed:
            return max(point, proven)
        path = self.layout.offset_path(point.segment, LOG)
        for segment in self.tail:
            if segment.base_offset == point.segment:
                size = segment.file.size()
                if size < point.position:
                    raise self._corrupt(path, size, f"it ends there; {point.position} bytes were acknowledged")
                return max(point, proven)
        raise self._corrupt(path, 0, f"the segment is missing; {point.position} bytes of it were acknowledged")

    def _newest_snapshot(self) -> tuple[Snapshot, RecoveryPoint]:
        """The newest from which all of the tail is replayed, else the beginning; and what snapshots prove synced."""
        tail_sizes = {segment.base_offset: segment.file.size() for segment in self.tail}
        starts = {segment.base_offset for segment in self.sealed}
        first = min(starts, default=self.tail[0].base_offset)
        begin, proven = Snapshot(first, first, 0, (), ()), RecoveryPoint(first, first, 0)
        for offset in [] if self.strict else self.layout.offsets(SNAPSHOT):
            snapshot = Snapshot.load(self.layout, offset)
            if snapshot is None:
                continue
            if snapshot.segment in tail_sizes or snapshot.segment > self.tail[-1].base_offset:
                size = tail_sizes.get(snapshot.segment, 0)
                if size < snapshot.position or snapshot.segment not in tail_sizes:
                    path = self.layout.offset_path(snapshot.segment, LOG)
                    raise self._corrupt(path, size, f"it ends there; a snapshot saw {snapshot.position} synced bytes")
                proven = RecoveryPoint(snapshot.offset, snapshot.segment, snapshot.position)
            # Inside a sealed segment a position may be from before it was compacted.
            sealed_start = snapshot.segment in starts and snapshot.position == 0
            if sealed_start or snapshot.segment == self.tail[0].base_offset:
                begin = snapshot
        return begin, proven

    # -- replay

    def _replay(self, snapshot: Snapshot, point: RecoveryPoint) -> LogState:
        start = RecoveryPoint(snapshot.offset, snapshot.segment, snapshot.position)
        state = LogState(
            self.layout,
            self.config,
            self.clock,
            [],
            self.point_file or RecoveryPointFile.create(self.layout, start),
            log_start_offset=self.manifest.log_start_offset,
            cleaned_offset=self.manifest.cleaned_offset,
            epochs=LeaderEpochs(list(snapshot.epochs)),
            producers=Producers.restore(snapshot.producers),
            checkpoint_offset=snapshot.offset,
        )
        expected = snapshot.offset
        for segment in [*self.sealed, *self.tail]:
            if segment.base_offset >= snapshot.segment:
                if segment.base_offset > expected and not self.cut:
                    self._bad(segment, 0, f"it begins at offset {segment.base_offset}; {expected} comes next", point)
                if self.cut:
                    self.layout.remove(segment.base_offset, LOG, SNAPSHOT, *INDEXES)
                    continue
                if segment in self.tail and segment.base_offset > snapshot.segment:
                    self.starts.append(_start_of(state, segment))
                self._replay_segment(state, segment, snapshot, point)
                expected = segment.end_offset
            state.segments = [*state.segments, segment]
        return state

    def _replay_segment(self, state: LogState, segment: Segment, snapshot: Snapshot, point: RecoveryPoint) -> None:
        listed = segment in self.sealed
        end_offset, size = (segment.end_offset, segment.size) if listed else (0, segment.file.size())
        begins_inside = segment.base_offset == snapshot.segment
        position = snapshot.position if begins_inside else 0
        offset = snapshot.offset if begins_inside else segment.base_offset
        self._begin(segment, position, offset)
        self.replayed_bytes += size - position
        now_ms = self.clock()
        try:
            for at, header, batch in segment.scan(position, size, offset, gaps=listed):
                segment.note_batch(header, header.base_offset, at, header.size)
                state.epochs.note(header.leader_epoch, header.base_offset)
                aborted = replay_batch(state.producers, header, lambda b=batch: b, now_ms)  # type: ignore[misc]
                if aborted is not None:
                    segment.loaded_indexes().aborted.append(aborted)
        except BadBatch as bad:
            self._bad(segment, bad.position, bad.reason, point)
            segment.file.truncate(bad.position)
        segment.end_offset = max(segment.end_offset, end_offset)

    def _begin(self, segment: Segment, position: int, offset: int) -> None:
        """The segment as it was at the snapshot: saved indexes up to there, or built again from its headers."""
        indexes = SegmentIndexes()
        if position:
            saved = SegmentIndexes.load(self.layout, segment.base_offset, least=position, most=segment.file.size())
            if saved is None:
                saved = rebuilt_indexes(segment, position, self.sealed)
            saved.cut(offset - segment.base_offset, position, segment.base_offset)
            indexes = saved
        segment.size, segment.end_offset = position, offset
        segment.indexes, segment.max_timestamp = indexes, indexes.max_timestamp

    def _bad(self, segment: Segment, position: int, reason: str, point: RecoveryPoint) -> None:
        """Damage or a torn tail? It depends on which side of the recovery point it lies."""
        path = self.layout.offset_path(segment.base_offset, LOG)
        if (segment.base_offset, position) < (point.segment, point.position):
            raise self._corrupt(path, position, reason)
        lost = segment.file.size() - position
        logger.warning("%s: cut at position %d, %d bytes never acknowledged: %s", path, position, lost, reason)
        self.cut = True

    # -- settle

    def _settle(self, state: LogState, point: RecoveryPoint) -> None:
        """Make the recovered state durable, then let appends in."""
        layout, end = self.layout, state.end_point
        for segment in self.sealed:
            segment.rebuild = lambda lost: rebuilt_indexes(lost, lost.size, state.segments)
        if self._is_settled(state, point, end):
            state.bytes_since_checkpoint = self.replayed_bytes
            self._let_in(state, end)
            return
        for offset in layout.offsets(SNAPSHOT):
            if offset > end.offset:
                layout.remove(offset, SNAPSHOT)
        for segment in self.tail:
            if segment in state.segments and (segment.base_offset, segment.size) > (point.segment, point.position):
                _rewrite(segment, point.position if segment.base_offset == point.segment else 0)
            if segment in state.segments and (self.cut or self.strict):
                segment.file.sync()
        layout.sync()
        try:
            self._save(state)
        except OSError as error:
            # A full disk: the log opens all the same, and the next flush lists and saves what could not be now.
            logger.warning("%s: the checkpoint is put off: %s", layout.directory, error)
            listed = {segment.base_offset for segment in self.sealed}
            state.rolled = [(s, state.snapshot()) for s in state.segments[:-1] if s.base_offset not in listed]
        state.point_file.advance(end)
        if end.offset > state.log_start_offset:
            layout.keep_reserve()
        self._let_in(state, end)

    def _is_settled(self, state: LogState, point: RecoveryPoint, end: RecoveryPoint) -> bool:
        """All that is there was acknowledged, and little of it had to be replayed: nothing is written or synced.

        Thousands of partitions are in this case when a broker starts again.
        """
        changed = self.cut or self.strict or self.names_changed or state.manifest() != self.manifest
        return not changed and point == end == state.flushed and self.replayed_bytes < _REPLAYED_BYTES

    def _let_in(self, state: LogState, end: RecoveryPoint) -> None:
        state.producers.high_watermark_moved(end.offset)
        state.epochs.truncate_start(state.log_start_offset)

    def _save(self, state: LogState) -> None:
        for segment in self.tail:
            if segment in state.segments[:-1]:
                segment.loaded_indexes().save(self.layout, segment.base_offset, segment.size)
        kept = {segment.base_offset for segment in state.segments}
        for start in self.starts:
            if start.segment in kept:
                start.save(self.layout)
        manifest = state.manifest()
        if manifest != self.manifest or self.strict:
            manifest.save(self.layout)
        if state.checkpoint_offset != state.log_end_offset or self.strict:
            save_checkpoint(state, state.active, state.active.loaded_indexes(), state.snapshot())
        remove_old_snapshots(state)

    def _corrupt(self, path: str, position: int, reason: str) -> CorruptLogError:
        return CorruptLogError(
            f"{path}: damaged at position {position}: {reason}. This lies below what was acknowledged, so the log is "
            f"not opened and nothing is cut; restore the file from a copy, or see what "
            f"`atonce broker --data … --repair` would take out"
        )


def _start_of(state: LogState, segment: Segment) -> Snapshot:
    entries = tuple(state.producers.entries.values())
    return Snapshot(segment.base_offset, segment.base_offset, 0, tuple(state.epochs.entries), entries)


def _rewrite(segment: Segment, start: int) -> None:
    """Write the same bytes again: fdatasync then really writes them, even if an earlier one failed unseen."""
    position = start
    while position < segment.size:
        data = segment.file.pread(position, min(SCAN_BYTES, segment.size - position))
        segment.file.pwrite(position, [data])
        position += len(data)
    segment.file.sync()
