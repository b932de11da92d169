"""A reader of the sink's table while the subject writes to it: each SELECT is one snapshot, and none may be torn."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from atonce.connectors.contract import Written
from atonce.errors import AtOnceError
from atonce.verify.audit.output import of_rows
from atonce.verify.ground.workload import MARK


@dataclass(frozen=True, slots=True)
class Snapshot:
    at: float
    numbers: frozenset[int]
    """The input records whose output was visible."""


@dataclass(slots=True)
class TableWatch:
    written: Written
    every_s: float = 0.05
    snapshots: list[Snapshot] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="atonce-verify-table", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self.every_s):
            # The database may be down, or the table not there yet: often the point of the run.
            try:
                rows = of_rows(self.written)
            except (AtOnceError, OSError):
                continue
            found = (MARK.search(row.value) for row in rows)
            seen = frozenset(int(mark.group(1)) for mark in found if mark)
            if not self.snapshots or self.snapshots[-1].numbers != seen:
                self.snapshots.append(Snapshot(time.time(), seen))

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(15)
