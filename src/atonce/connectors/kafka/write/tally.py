"""It must add up: a commit is allowed only if every sender saw the same executions of the encoder, and all of each.

Otherwise a map stage was computed again between two senders, and one that is not quite deterministic has moved rows
between partitions: some would be lost, others doubled. Then the attempt is aborted and the batch runs again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from atonce.errors import AttemptAborted


@dataclass(slots=True)
class SlotTally:
    """What one sending task saw of one slot."""

    slot: int
    seen: dict[int, int] = field(default_factory=dict)
    """Run → blobs received, in order."""
    expected: dict[int, int] = field(default_factory=dict)
    """Run → blobs its footer promised."""

    def blob(self, run: int, index: int) -> None:
        if index != self.seen.get(run, 0):
            raise AttemptAborted(
                f"slot {self.slot} got blob {index} of run {run}, expected {self.seen.get(run, 0)}: the batch runs "
                f"again"
            )
        self.seen[run] = index + 1

    def footer(self, run: int, count: int) -> None:
        self.expected[run] = count
        self.seen.setdefault(run, 0)


def check(tallies: Iterable[SlotTally], slots: int) -> None:
    """Raises `AttemptAborted`, saying what does not add up."""
    by_slot: dict[int, SlotTally] = {}
    for tally in tallies:
        if tally.slot in by_slot:
            raise AttemptAborted(f"slot {tally.slot} was sent by two tasks: the batch runs again")
        by_slot[tally.slot] = tally
        if tally.seen != tally.expected:
            raise AttemptAborted(
                f"slot {tally.slot} sent {sum(tally.seen.values())} blobs of {len(tally.seen)} runs, expected "
                f"{sum(tally.expected.values())} of {len(tally.expected)}: the batch runs again"
            )
    runs = [set(tally.expected) for tally in by_slot.values()]
    if runs and (len(by_slot) != slots or any(each != runs[0] for each in runs)):
        raise AttemptAborted(
            f"{len(by_slot)} of {slots} slots reported and they did not all see the same executions of the map stage "
            "(part of it was computed again): the batch runs again"
        )
