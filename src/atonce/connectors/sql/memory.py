"""How old remembered things are (message numbers, deletions), by a clock that no jump of a wall clock can push ahead.

What is forgotten too early comes back: as a duplicate, or as a deleted row that stands again. So a memory is aged by
its own time. It begins at the newest time that the memory holds, goes on by the driver's monotonic clock, and is what
new entries are stamped with. The time between two processes is nobody's to measure: the database's clock is believed
for it, for at most a tenth of the age. If it says more, everything that is remembered is moved up by the rest: left
behind, the memory would seem to be away again at every start, and forget all of it after ten of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from atonce.errors import RefusedError

PRUNE_EVERY_S = 60.0
_GAP_SHARE = 10
_GAP_WITHOUT_AGE_S = 86400.0
_ROUNDED_S = 1.0


class MemoryClock:
    """The time of one memory, in seconds since 1970. Begun by each process with what it finds."""

    def __init__(self, keep_s: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most_s = keep_s / _GAP_SHARE if keep_s is not None else _GAP_WITHOUT_AGE_S
        self._keep_s = keep_s
        self._monotonic = monotonic
        self._begun: tuple[float, float] | None = None
        self._moved_to: float | None = None
        """The newest time after a move, if its transaction is committed."""
        self._pruned_at: float | None = None

    def read(self, found: Callable[[], tuple[float | None, float]], move_up: Callable[[float], None]) -> float:
        """Now. `found`: the newest time in the memory (None: it is empty), and the database's clock; asked until begun.

        `move_up` makes everything in the memory younger by so many seconds, in the transaction that `found` reads in.
        """
        if self._begun is None:
            newest, clock = found()
            if newest is not None and clock - newest > self._most_s and not self._is_moved(newest):
                move_up(clock - newest - self._most_s)
                self._moved_to = clock - self._most_s
                return clock  # begun only when another transaction finds that this one was committed
            self._begun = (clock if newest is None else max(clock, newest), self._monotonic())
        begin, at = self._begun
        return begin + self._monotonic() - at

    def _is_moved(self, newest: float) -> bool:
        return self._moved_to is not None and newest > self._moved_to - _ROUNDED_S

    def oldest(self, now: float) -> float | None:
        """What is older may be forgotten; None: nothing, or not yet again."""
        if self._keep_s is None or (self._pruned_at is not None and now - self._pruned_at < PRUNE_EVERY_S):
            return None
        self._pruned_at = now
        return now - self._keep_s


def give_to_the_table(execute: Callable[[str], Any], memory: str, create: str) -> None:
    """Message numbers that an older version kept for each pipeline, as what they are now: the table's own."""
    refuse_numbers_of_two(execute, memory)
    for statement in (
        f"CREATE TEMPORARY TABLE atonce_numbers AS SELECT number, seen_at FROM {memory}",
        f"DROP TABLE {memory}",
        create,
        f"INSERT INTO {memory} (number, seen_at) SELECT number, seen_at FROM atonce_numbers",
        "DROP TABLE atonce_numbers",
    ):
        execute(statement)


def refuse_numbers_of_two(execute: Callable[[str], Any], memory: str) -> None:
    """A number that two pipelines took was two messages: as the table's, one of such would be dropped from now on."""
    found = execute(
        f"SELECT number, min(pipeline), max(pipeline) FROM {memory} GROUP BY number HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    if found is not None:
        raise RefusedError(
            f"{memory} holds number {found[0]} of {found[1]!r} and of {found[2]!r}, but numbers belong to the table, "
            "whoever brings them: the message of one of the two would be dropped. Nothing was delivered. Next: make "
            "numbers unique to each message (a prefix of the pipeline will do), or give the pipelines tables of their "
            f"own; then DELETE FROM {memory} what is no longer needed."
        )
