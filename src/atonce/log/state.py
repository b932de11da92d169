"""The state of one open log. The other files of this room each hold one thing that is done with it.

Locks: `lock` guards everything here and is held for microseconds, never over an fsync. `flush_lock` lets one flush run
at a time; `clean_lock` one of retention, compaction and DeleteRecords. Order: clean, flush, lock. `segments` is
replaced, never changed in place, so a reader may keep the list it saw.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from atonce.log.config import LogConfig
from atonce.log.epochs import LeaderEpochs
from atonce.log.errors import PartitionOffline
from atonce.log.layout import Layout
from atonce.log.manifest import Manifest
from atonce.log.producers import Producers
from atonce.log.recovery_point import RecoveryPoint, RecoveryPointFile
from atonce.log.segment import Segment
from atonce.log.snapshot import Snapshot

Clock = Callable[[], int]


@dataclass(slots=True)
class LogState:
    """`segments[-1]` is the active one. `rolled` are sealed ones that the manifest does not list yet."""

    layout: Layout
    config: LogConfig
    clock: Clock
    segments: list[Segment]
    point_file: RecoveryPointFile
    log_start_offset: int = 0
    cleaned_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: Producers = field(default_factory=Producers)
    rolled: list[tuple[Segment, Snapshot]] = field(default_factory=list)
    offline: str | None = None
    checkpoint_offset: int = 0
    bytes_since_checkpoint: int = 0
    batches_since_checkpoint: int = 0
    last_flush_ms: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    flush_lock: threading.RLock = field(default_factory=threading.RLock)
    clean_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].end_offset

    @property
    def flushed(self) -> RecoveryPoint:
        return self.point_file.point

    @property
    def high_watermark(self) -> int:
        return self.point_file.point.offset if self.config.flush_before_ack else self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        first = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if first is None else max(min(first, high_watermark), self.log_start_offset)

    @property
    def end_point(self) -> RecoveryPoint:
        active = self.active
        return RecoveryPoint(active.end_offset, active.base_offset, active.size)

    def check_online(self) -> None:
        if self.offline is not None:
            raise PartitionOffline(self.offline)

    def go_offline(self, what: str, error: OSError) -> PartitionOffline:
        """After this nothing is read or written until the broker is restarted and the log recovered."""
        self.offline = (
            f"{self.layout.directory}: {what} failed ({error}). Nobody knows what is on disk now, so the partition is "
            f"offline; check the disk and restart the broker"
        )
        return PartitionOffline(self.offline)

    def snapshot(self) -> Snapshot:
        """The state at the log end offset."""
        point = self.end_point
        entries = tuple(self.producers.entries.values())
        return Snapshot(point.offset, point.segment, point.position, tuple(self.epochs.entries), entries)

    def manifest(self) -> Manifest:
        """Every sealed segment except those in `rolled`, which are not known to be synced."""
        unlisted = {segment.base_offset for segment, _ in self.rolled}
        return Manifest(
            first_segment=self.segments[0].base_offset,
            log_start_offset=self.log_start_offset,
            cleaned_offset=self.cleaned_offset,
            segments=tuple(s.sealed for s in self.segments[:-1] if s.base_offset not in unlisted),
        )
