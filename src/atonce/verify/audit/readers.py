"""What comes out, as readers see it: a read_committed reader during the run, and the whole log at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from atonce.errors import AtOnceError
from atonce.verify.wire.asker import ClusterError
from atonce.verify.wire.batches import ABORT_MARKER, Record, decode
from atonce.verify.wire.cluster import COMMITTED, EARLIEST, LATEST, UNCOMMITTED, Cluster, Fetched


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a read_committed reader was given, and when."""

    at: float
    record: Record
    poll: int = 0
    """In which poll; what came in one has the same number."""


class CommittedReader:
    """Reads one topic as every read_committed client does: aborted transactions are skipped by the broker's list."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.seen: list[Seen] = []
        self.last_stable: dict[int, int] = {}
        self.high_watermark: dict[int, int] = {}
        self.backwards: list[str] = []
        """Times that a last stable offset or high watermark moved back."""
        self._positions: dict[int, int] = {}
        self._led: dict[int, int] = {}
        self._polls = 0

    def poll(self, wait_ms: int = 0) -> int:
        """One fetch; how many records were new."""
        if not self._positions:
            self._positions = self.cluster.offsets(self.topic, EARLIEST)
        got = 0
        self._polls += 1
        for part in self.cluster.fetch(self.topic, self._positions, COMMITTED, wait_ms):
            if part.error == 0:
                got += self._take(part)
            else:
                self.cluster.forget(self.topic)
        return got

    def _take(self, part: Fetched) -> int:
        leader = self.cluster.leader(self.topic, part.partition)
        before = self.last_stable.get(part.partition, 0)
        # A new leader may take a moment to know how far all replicas are (KIP-207): what it says first can be less.
        if part.last_stable_offset < before and self._led.get(part.partition) == leader:
            self.backwards.append(
                f"last stable offset of {self.topic}/{part.partition} went from {before} to {part.last_stable_offset}"
            )
        self._led[part.partition] = leader
        self.last_stable[part.partition] = part.last_stable_offset
        self.high_watermark[part.partition] = part.high_watermark
        start = position = self._positions[part.partition]
        now, got = time.time(), 0
        starts = sorted(part.aborted, key=lambda one: one[1])
        aborted: set[int] = set()
        for record in decode(part.partition, part.records):
            while starts and starts[0][1] <= record.offset:
                aborted.add(starts.pop(0)[0])
            if record.control:
                if record.marker == ABORT_MARKER:
                    aborted.discard(record.producer_id)
            # A batch may begin below where we asked; whatever else comes is taken as it comes, for the checks to judge.
            elif record.offset >= start and not (record.transactional and record.producer_id in aborted):
                self.seen.append(Seen(now, record, self._polls))
                got += 1
            position = max(position, record.offset + 1)
        self._positions[part.partition] = position
        return got

    def caught_up(self) -> bool:
        """Nothing is held back: the last stable offset has reached the end, and so have we."""
        ends = self.cluster.offsets(self.topic, LATEST, UNCOMMITTED)
        stable = self.cluster.offsets(self.topic, LATEST, COMMITTED)
        return ends == stable and all(self._positions.get(p, 0) >= end for p, end in ends.items())


@dataclass(slots=True)
class Watch:
    """A CommittedReader in a thread, from the start of a run to its end; it outlives broker restarts."""

    reader: CommittedReader
    every_s: float = 0.02
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    trouble: str = ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="atonce-verify-reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.reader.poll(wait_ms=50)
            except (OSError, AtOnceError) as error:
                self.trouble = str(error)  # the broker is down or moving; that is often the point of the run
                self.reader.cluster.forget(self.reader.topic)
                self._stop.wait(0.1)
            self._stop.wait(self.every_s)

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(15)

    def first_after(self, moment: float) -> float | None:
        return next((seen.at for seen in self.reader.seen if seen.at > moment), None)

    def count(self) -> int:
        return len(self.reader.seen)


def whole_log(cluster: Cluster, topic: str) -> list[Record]:
    """Every record and marker of a topic, uncommitted and aborted ones included."""
    positions = cluster.offsets(topic, EARLIEST)
    ends = cluster.offsets(topic, LATEST)
    out: list[Record] = []
    while any(positions[p] < ends[p] for p in ends):
        wanted = {p: positions[p] for p in ends if positions[p] < ends[p]}
        moved = False
        for part in cluster.fetch(topic, wanted, UNCOMMITTED):
            if part.error:  # half a log must not be judged as a whole one
                raise ClusterError(f"fetch on {topic}/{part.partition}: the broker answered error {part.error}")
            for record in decode(part.partition, part.records):
                if record.offset >= positions[part.partition]:
                    out.append(record)
                    positions[part.partition] = record.offset + 1
                    moved = True
        if not moved:
            break  # the rest was removed (compaction, retention)
    return out


@dataclass(frozen=True, slots=True)
class Transactions:
    """Which (producer id, epoch, partition, first offset) ended how, from the markers in the log."""

    aborted: frozenset[tuple[int, int]]
    """(partition, offset) of every record in an aborted transaction"""
    committed: frozenset[tuple[int, int]]
    open: frozenset[tuple[int, int]]
    endings: dict[tuple[int, int], dict[int, list[int]]]
    """(producer id, epoch) → partition → markers"""


def transactions(log: Iterable[Record]) -> Transactions:
    """Resolves every transactional record by the marker that follows it in its partition."""
    pending: dict[tuple[int, int], list[Record]] = {}
    aborted: set[tuple[int, int]] = set()
    committed: set[tuple[int, int]] = set()
    endings: dict[tuple[int, int], dict[int, list[int]]] = {}
    for record in sorted(log, key=lambda one: (one.partition, one.offset)):
        group = (record.partition, record.producer_id)
        if record.control:
            marker = record.marker
            if marker is None:
                continue
            held = pending.pop(group, [])
            (aborted if marker == ABORT_MARKER else committed).update((r.partition, r.offset) for r in held)
            for epoch in {r.epoch for r in held}:
                endings.setdefault((record.producer_id, epoch), {}).setdefault(record.partition, []).append(marker)
        elif record.transactional:
            pending.setdefault(group, []).append(record)
    still = {(r.partition, r.offset) for held in pending.values() for r in held}
    return Transactions(frozenset(aborted), frozenset(committed), frozenset(still), endings)
