"""One driver's hold on its pipeline in a table: compared after every look, renewed whenever a commit is in doubt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from atonce.backoff import Backoff
from atonce.connectors.lake.parquet import WrittenFile
from atonce.connectors.lake.plans import Entry, epoch_of
from atonce.connectors.lake.table import Entries, LakeTable, Snapshot
from atonce.delivery.contract import Identity
from atonce.delivery.progress import Progress
from atonce.errors import AtOnceError, AttemptAborted, InvariantError, LedgerMismatch, ReplacedError, RetriableError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _RESOLVE_LIMIT_S = 0.05, 2.0, 60.0
_log = logging.getLogger("atonce")


class Claim:
    """The table's number for this pipeline must be the one that this driver wrote last, and be its own.

    A commit whose outcome is not known (also one that is answered with a conflict: it may be our own entry that it met)
    is resolved by a claim with the next epoch. After that it can no longer arrive, and what the claim follows says
    whether it had.
    """

    def __init__(self, identity: Identity, table: LakeTable, plans: Entries) -> None:
        self._identity = identity
        self._table = table
        self._plans = plans
        self._claimed = identity.claimed
        self._held: Entry | None = None
        self._last = -1
        """The last number that we put down; none is used twice."""
        self.doubt: Entry | None = None
        self.replaced = identity.replaced
        self.closing = threading.Event()

    @property
    def held(self) -> Entry:
        if self._held is None:
            raise InvariantError(f"pipeline {self._identity.name}: a delivery before the table was claimed")
        return self._held

    def take(self) -> Progress | None:
        """The newest instance wins; one that had the pipeline before never takes it back from a newer one."""
        before = self._renew(self._may_renew if self._claimed else lambda entry: True)
        if before is not None and before.owner != self._identity.instance:
            self.replaced = (before.owner, before.number)
        self._claimed = True
        self.doubt = None
        return self.held.progress

    @property
    def next_number(self) -> int:
        """Of the next commit."""
        return max(self.held.number, self._last) + 1

    def peek(self) -> Progress | None:
        """What the table holds of the pipeline, whoever holds it."""
        entry = self._look()[1]
        return None if entry is None else entry.progress

    def standing(self) -> Snapshot | None:
        """A snapshot in which the pipeline stands where we left it; else the error that says who moved it."""
        snapshot, entry = self._look()
        if entry is None or entry != self.held:
            raise self._why(entry)
        return snapshot

    def resolve(self) -> bool:
        """Whether the commit in doubt is in. Then, or else, it never will be."""
        doubt = self.doubt
        if doubt is None:
            return False
        self._renew(lambda entry: entry in (self._held, doubt))
        self.doubt = None
        return self.held.after == doubt.number

    def commit(
        self,
        snapshot: Snapshot | None,
        progress: Progress | None,
        files: Sequence[WrittenFile] = (),
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """Files and progress in one step on a snapshot from `standing`; `before_commit` right before it is sent."""
        entry = self._put(progress, snapshot)
        before_commit()
        if snapshot is None:  # nobody knows the columns yet: the newest plan file is what counts
            if self._plans.newest() != entry:
                raise self._why(self._plans.newest())
        else:
            self.doubt = entry  # from here on, whatever interrupts us, it is resolved first
            try:
                snapshot.commit(entry, files)
            except Exception as error:
                if not self.resolve():
                    raise AttemptAborted(
                        f"pipeline {self._identity.name}: a commit to its table was not accepted ({_line(error)}); "
                        "the table shows that nothing of it is in. It runs again."
                    ) from error
                return  # the claim that showed it is what we hold
        self._held, self.doubt = entry, None
        if entry.number % 16 == 0:
            self._plans.prune(entry.number)

    def _put(self, progress: Progress | None, snapshot: Snapshot | None) -> Entry:
        number = self.next_number
        entry = self._entry(number, self.held.number, progress, snapshot)
        if not self._plans.put(entry):
            raise InvariantError(
                f"pipeline {self._identity.name}: number {number} of its table is taken, though its epoch is ours. "
                "Nothing more is delivered. Next: start the pipeline again."
            )
        self._last = number
        return entry

    def _renew(self, may: Callable[[Entry | None], bool]) -> Entry | None:
        """A claim with the next epoch on top of an entry that `may` be claimed over; returns that entry."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _RESOLVE_LIMIT_S)
        sent: dict[int, tuple[Entry, Entry | None]] = {}
        while True:
            try:
                snapshot, entry = self._look()
                if entry is not None and entry.number in sent and sent[entry.number][0] == entry:
                    self._held, self._last = entry, entry.number
                    return sent[entry.number][1]
                if not may(entry):
                    raise self._why(entry)
                if snapshot is None and self._table.begin():
                    continue
                epoch = 1 + epoch_of(max([-1, *self._plans.numbers(), -1 if entry is None else entry.number]))
                claim = self._entry(
                    max(epoch, 1) << 32,
                    -1 if entry is None else entry.number,
                    None if entry is None else entry.progress,
                    snapshot,
                )
                if not self._plans.put(claim):
                    continue  # somebody else claims at this very moment
                sent[claim.number] = (claim, entry)
                if snapshot is not None:
                    self._send(snapshot, claim)
            except RetriableError as error:
                if self.closing.is_set() or backoff.over:
                    raise
                _log.info("pipeline %s: %s; trying again", self._identity.name, error)
                backoff.wait(self.closing)

    def _send(self, snapshot: Snapshot, claim: Entry) -> None:
        try:
            snapshot.commit(claim, ())
        except Exception as error:
            raise RetriableError(f"a claim on its table was not accepted: {_line(error)}") from error

    def _entry(self, number: int, after: int, progress: Progress | None, snapshot: Snapshot | None) -> Entry:
        return Entry(
            number=number,
            owner=self._identity.instance,
            after=after,
            table="" if snapshot is None else snapshot.id,
            progress=progress,
        )

    def _look(self) -> tuple[Snapshot | None, Entry | None]:
        snapshot = self._table.snapshot()
        if snapshot is not None and (entry := snapshot.entry) is not None:
            return snapshot, entry
        waiting = self._plans.newest()
        if snapshot is None and waiting is not None and waiting.table:
            raise LedgerMismatch(
                f"the table of {self._identity.name} is gone, and its progress in {self._plans.describe()} is not. "
                "Nothing was delivered. Next: restore the table, or remove that folder and start over with "
                "`atonce reset`."
            )
        return snapshot, None if waiting is None or waiting.table else waiting

    def _may_renew(self, entry: Entry | None) -> bool:
        if entry is None:
            return False
        return entry.owner == self._identity.instance or (entry.owner, entry.number) == self.replaced

    def _why(self, entry: Entry | None) -> AtOnceError:
        """Why the pipeline does not stand where we left it."""
        name, left = self._identity.name, self._held
        ours = -1 if left is None else left.number
        if entry is None:
            return LedgerMismatch(
                f"the table holds nothing of {name} any more{_left_at(left)}: it was replaced by another one. Nothing "
                "more is delivered. Next: restore it, or start over with `atonce reset`."
            )
        if entry.owner != self._identity.instance and (entry.owner, entry.number) != self.replaced:
            back = ", or the table went back to before this one began" if entry.number < ours else ""
            return ReplacedError(
                f"pipeline {name} was taken over by instance {entry.owner}{back} (epoch {epoch_of(entry.number)}, ours "
                f"was {epoch_of(ours)}). This instance, {self._identity.instance}, delivers nothing more."
            )
        if entry.number > ours:
            return InvariantError(
                f"pipeline {name}: number {entry.number} in its table carries our own id, but we hold {ours}. Nothing "
                "more is delivered. Next: start the pipeline again."
            )
        return LedgerMismatch(
            f"the table of {name} went back under the running pipeline (a restore): it stands at {_words(entry)}"
            f"{_left_at(left)}. Nothing was delivered on top of it."
        )


def _words(entry: Entry) -> str:
    at = (
        "nothing delivered"
        if entry.progress is None
        else f"batch {entry.progress.batch_id}, {entry.progress.positions}"
    )
    return f"{at} (number {entry.number})"


def _left_at(entry: Entry | None) -> str:
    return "" if entry is None else f"; it was left at {_words(entry)}"


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
