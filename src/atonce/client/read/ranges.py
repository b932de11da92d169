"""A range of one partition as it is asked for, and what became of each of its offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from atonce.errors import InvariantError


class Wanted(NamedTuple):
    """Offsets start <= offset < end of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    """Read from this very topic and no other of its name. None: from whatever has the name now."""
    epoch: int = -1
    """Leader epoch of the record just before `start`; -1 when it is not known."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Why each offset of a finished range gave a record, or none. The five numbers add up to `end - start`."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    """Visible records, all of them given."""
    control: int
    """Markers of transactions."""
    aborted: int
    """Records of aborted transactions."""
    missing: int
    """Offsets at which there is no record: compacted away."""
    gone: int
    """Removed by retention before they were read; only where the reader was told to go on without them."""
    epoch: int
    """Leader epoch in which the offset before `end` was written, as the batches tell it; -1 when none tells."""
    first_epoch: int = -1
    """Leader epoch of the first batch that was read; -1 when there was none."""
    last_epoch: int = -1
    """Leader epoch of the last batch that was read."""
    reach: int = -1
    """After the last offset that this batch covers, at most `end`."""

    def __post_init__(self) -> None:
        found = self.records + self.control + self.aborted + self.missing + self.gone
        if found != self.end - self.start:
            raise InvariantError(
                f"{self.topic}/{self.partition}: offsets {self.start} to {self.end - 1} are {self.end - self.start}, "
                f"but {found} are accounted for ({self.records} records, {self.control} markers, {self.aborted} "
                f"aborted, {self.missing} without a record, {self.gone} removed). Nothing of this batch is delivered."
            )


class Seam(NamedTuple):
    """Two pieces of a partition, read one by one, meet: both lie in one log, or the log was cut between them."""

    topic: str
    partition: int
    upto: int
    """The piece before was read up to here,"""
    epoch: int
    """and its last record in this leader epoch."""
    start: int
    """The piece behind was read from here on,"""
    next_epoch: int
    """and its first record in this leader epoch."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def seams(accounts: Iterable[Account], before: tuple[int, int] = (-1, -1)) -> list[Seam]:
    """Where the leader epoch changes from one piece of a partition to the next. Inside a piece, every fetch asks.

    `before`: where the first piece begins, and the leader epoch of the record just before; -1 when it is not known.
    """
    (upto, epoch), found = before, []
    for each in sorted(accounts, key=lambda account: (account.start, account.first_epoch)):
        if each.first_epoch < 0:
            continue
        if epoch not in (-1, each.first_epoch):
            found.append(Seam(each.topic, each.partition, upto, epoch, each.start, each.first_epoch))
        epoch, upto = each.last_epoch, each.end if each.epoch >= 0 else each.reach
    return found


def as_wanted(ranges: Iterable[tuple[str, int, int, int] | Wanted]) -> list[Wanted]:
    return [each if isinstance(each, Wanted) else Wanted(*each) for each in ranges]
