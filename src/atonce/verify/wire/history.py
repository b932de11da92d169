"""What each side did and was answered, in the order it happened. The checks read this; nothing else judges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from atonce.verify.wire.decode import Facts


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request through the proxy."""

    at: float
    connection: int
    client_id: str | None
    api: str
    version: int
    facts: Facts
    outcome: str = "unknown"
    """unknown (sent, no answer seen), answered, dropped (the broker never saw it), failed (we answered)."""
    answered_at: float | None = None
    errors: tuple[int, ...] = ()
    base_offsets: tuple[tuple[str, int, int], ...] = ()
    """Produce: (topic, partition, base offset) as acknowledged."""

    @property
    def acknowledged(self) -> bool:
        return self.outcome == "answered" and not self.errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened to the subject, the broker or the database: start, kill, step, recovery."""

    at: float
    what: str
    """started, killed, paused, resumed, stopped, step, fault, recovered, drained, broker-killed …"""
    detail: str = ""
    batch_id: int | None = None


@dataclass(slots=True)
class History:
    """Thread-safe: the proxy's loop, the readers and the runner all write to it."""

    entries: list[Entry] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    """Of all requests, those included that are not kept."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, entry: Entry) -> None:
        with self._lock:
            self.entries.append(entry)

    def mark(self, what: str, detail: str = "", batch_id: int | None = None) -> None:
        with self._lock:
            self.marks.append(Mark(at=time.time(), what=what, detail=detail, batch_id=batch_id))

    def of(self, *apis: str) -> Iterator[Entry]:
        with self._lock:
            chosen = [entry for entry in self.entries if entry.api in apis]
        return iter(chosen)

    def groups(self) -> set[str]:
        """Consumer groups that the subject used."""
        with self._lock:
            return {entry.facts.group for entry in self.entries if entry.facts.group}

    def last_write_at(self) -> float:
        """When the subject last wrote output or progress, or was answered for it."""
        with self._lock:
            return max(
                (max(entry.at, entry.answered_at or 0) for entry in self.entries if entry.api in WRITES), default=0.0
            )


WRITES = frozenset({"produce", "offset_commit", "txn_offset_commit", "end_txn", "add_offsets_to_txn"})
