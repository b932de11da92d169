"""How old remembered things are (message numbers, deletions), by a clock that no jump of a wall clock can push ahead.

What is forgotten too early comes back: as a duplicate, or as a deleted row that stands again. So a memory is aged by
its own time. It begins at the newest time that the memory holds, goes on by the driver's monotonic clock, and is what
new entries are stamped with. The time between two processes is nobody's to measure: the database's clock is believed
for it, for at most a tenth of the age. A clock that jumps makes a memory last longer, and never forget all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PRUNE_EVERY_S = 60.0
_GAP_SHARE = 10
_GAP_WITHOUT_AGE_S = 86400.0


class MemoryClock:
    """The time of one memory, in seconds since 1970. Begun by each process with what it finds."""

    def __init__(self, keep_s: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._monotonic = monotonic
        self._begun: tuple[float, float] | None = None
        self._pruned_at: float | None = None

    def read(self, found: Callable[[], tuple[float | None, float]]) -> float:
        """Now. `found` is asked once: the newest time in the memory (None: it is empty), and the database's clock."""
        if self._begun is None:
            newest, clock = found()
            most = self._keep_s / _GAP_SHARE if self._keep_s is not None else _GAP_WITHOUT_AGE_S
            begin = clock if newest is None else newest + min(max(clock - newest, 0.0), most)
            self._begun = (begin, self._monotonic())
        begin, at = self._begun
        return begin + self._monotonic() - at

    def oldest(self, now: float) -> float | None:
        """What is older may be forgotten; None: nothing, or not yet again."""
        if self._keep_s is None or (self._pruned_at is not None and now - self._pruned_at < PRUNE_EVERY_S):
            return None
        self._pruned_at = now
        return now - self._keep_s
