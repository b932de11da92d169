"""An open lake sink: a batch is files that nobody sees, and then one commit that names them and the progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from atonce.connectors.lake.aside import LakeLetters, attempt_of
from atonce.connectors.lake.claim import Claim
from atonce.connectors.lake.job import run
from atonce.connectors.lake.names import attempt
from atonce.connectors.lake.parquet import WrittenFile
from atonce.connectors.lake.plans import epoch_of
from atonce.connectors.lake.table import Entries, LakeTable, LetterShelf, Snapshot
from atonce.connectors.lake.upsert import Upsert
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.events import Aborted, Committed, Committing, OutputDone, ProgressDone, Retrying
from atonce.delivery.letters import Kept, Letter
from atonce.delivery.moving.backfill import refuse_overlap
from atonce.delivery.progress import Progress
from atonce.delivery.timer import AUTO_COMMIT_INTERVAL_S, TimedCommits
from atonce.errors import AttemptAborted, InvariantError, OutcomeUnknown, RetriableError, UndeliverableRow
from atonce.guarantee import Guarantee
from atonce.spark.arrow_job import ArrowJobs

_TRIES = 3
_log = logging.getLogger("atonce")


class OpenLakeSink:
    """`OpenSink` over a `LakeTable`."""

    def __init__(
        self,
        identity: Identity,
        table: LakeTable,
        plans: Entries,
        *,
        letters: LetterShelf | None = None,
        upsert: Upsert | None = None,
        standing: Callable[[str], Progress | None] = lambda name: None,
        timer_interval_s: float = AUTO_COMMIT_INTERVAL_S,
    ) -> None:
        self._identity = identity
        self._table = table
        self._letters = None if letters is None else LakeLetters(letters, identity)
        self._upsert = upsert
        self._claim = Claim(identity, table, plans)
        self._jobs = ArrowJobs()
        self._timer = TimedCommits(self._record_from_timer, timer_interval_s)
        self._committing = threading.RLock()
        """The timer's thread and the delivery's both commit."""
        self._standing = standing
        """Where another pipeline into this table stands."""

    def claim(self) -> Progress | None:
        with self._committing:
            recorded = self._claim.take()
            if self._letters is not None:
                self._letters.claimed(self._claim.held.number, recorded)
                if self._identity.stands_for is not None:
                    self._letters.settle(recorded)
            return recorded

    def peek(self) -> Progress | None:
        return self._claim.peek()

    @property
    def replaced(self) -> tuple[str, int] | None:
        return self._claim.replaced

    def check_claim(self) -> None:
        with self._committing:
            self._settle_doubt()
            self._claim.standing()

    def accepts(self, schema: Any) -> None:
        snapshot = self._table.snapshot()
        if snapshot is None:
            self._table.accepts(schema)
        else:
            snapshot.task(schema, evolving=True)

    def output(self, batch: Batch) -> int | None:
        """The output alone. Except at level none it is fenced: the commit repeats the progress that stands."""
        with self._committing:
            self._settle_doubt()
            files, rules = self._write(batch)
            snapshot = self._same(rules)
            self._letters_are_in()  # such a batch may be there twice, and so is never without them
            if self._identity.guarantee is not Guarantee.NONE:
                self._claim.commit(snapshot, self._claim.held.progress, files)
                return _rows(files)
            try:
                snapshot.commit(None, files)
            except Exception as error:
                raise OutcomeUnknown(f"rows were sent to the table and the answer was lost: {error}") from error
            return _rows(files)

    def progress(self, progress: Progress) -> None:
        with self._committing:
            for left in reversed(range(_TRIES)):
                self._settle_doubt()
                if self._claim.held.progress == progress:
                    self._claim.standing()
                    return  # sent again after a lost answer
                try:
                    self._advance(progress)
                    return
                except AttemptAborted:
                    if not left:
                        raise

    def progress_on_timer(self, progress: Progress) -> None:
        self._timer.submit(progress)

    def output_and_progress(self, batch: Batch, progress: Progress) -> int | None:
        with self._committing:
            if self._claim.doubt is not None:
                batch.watch(Retrying(why="a commit's outcome is unknown; asking the table", in_doubt=True))
                doubted = self._claim.doubt.progress
                if self._claim.resolve() and doubted is not None and matches(doubted, progress):
                    self._letters_are_in()
                    batch.complete(doubted)
                    return None
            try:
                return self._deliver(batch, progress)
            except RetriableError as error:
                batch.watch(Aborted(why=str(error)))
                raise

    def settle(self) -> None:
        """Rows are visible once their commit is answered; what can be behind is the timer."""
        self._timer.tick()

    def close(self) -> None:
        self._claim.closing.set()
        try:
            self._timer.close()
        except Exception as error:
            _log.warning("pipeline %s: its last progress was not recorded: %s", self._identity.name, error)

    def _deliver(self, batch: Batch, progress: Progress) -> int:
        files, rules = self._write(batch, progress)
        rows = _rows(files)
        batch.watch(OutputDone(rows=rows))
        wanted = batch.complete(progress)
        self._refuse_older(wanted)

        def before_commit() -> None:
            batch.watch(ProgressDone())
            batch.watch(Committing())

        self._claim.commit(self._same(rules), wanted, files, before_commit)
        self._letters_are_in()
        batch.watch(Committed(rows=rows))
        self._tidy()
        return rows

    def _tidy(self) -> None:
        """Between two batches; what it cannot do now it can do later."""
        try:
            self._table.tidy(self._claim.held.number & 0xFFFFFFFF)
        except Exception as error:
            _log.warning("pipeline %s: its table was not compacted: %s", self._identity.name, error)

    def _write(self, batch: Batch, progress: Progress | None = None) -> tuple[Sequence[WrittenFile], str]:
        """The batch as files, and the table's rules that they were written by. Nobody sees them yet."""
        if (below := self._identity.below) is not None:
            # Where a pipeline began moves only when it is set back, and that delivers again what is there by then.
            refuse_overlap(below, self._standing(below), batch.plan)
        snapshot = self._claim.standing()
        if snapshot is None:
            self._table.create(batch.df.schema, self._claim.held.number)
            snapshot = self._claim.standing()
            if snapshot is None:
                raise RetriableError("the table was made, and is gone again")
        if snapshot.evolve(batch.df.schema):  # a commit of its own: a crash behind it leaves an empty column
            snapshot = self._claim.standing()
            if snapshot is None:
                raise RetriableError("the table got a column, and is gone")
        if self._upsert is not None:
            self._upsert.refuse_order(batch, self._table.describe())
        held = self._claim.held.number
        named = attempt(self._identity.name, epoch_of(held), (held & 0xFFFFFFFF) + 1)
        files, dead = run(self._jobs, batch, snapshot.task(batch.df.schema), named)
        if self._upsert is not None:
            self._upsert.refuse_many(_rows(files), self._table.describe())
        self._put_aside(batch, dead, progress)
        return files, snapshot.rules

    def _put_aside(self, batch: Batch, dead: Sequence[dict[str, Any]], progress: Progress | None) -> None:
        unread = batch.aside()
        if unread and self._letters is None:
            raise unreadable(unread[0], self._table.describe())
        if self._letters is not None:
            alone = Progress(instance=self._identity.instance, query_id="", batch_id=-1, positions=None)
            self._letters.put_aside(batch, [*unread, *dead], self._claim.next_number, progress or alone)

    def _letters_are_in(self) -> None:
        if self._letters is not None:
            self._letters.committed()

    def deliver_letters(self, batch: Batch, progress: Progress, chosen: Sequence[Kept]) -> tuple[int | None, int]:
        """The rows' commit names the letters that they are; what is marked on those afterwards only repeats it."""
        if self._letters is None:
            raise InvariantError(f"pipeline {self._identity.name}: a replay into a table that keeps no letters")
        failed: dict[tuple[Any, int], Letter] = {}

        def hear(some: Sequence[Letter]) -> None:
            failed.update({(each.place, each.index): each for each in some})

        def complete(progress: Progress) -> Progress:
            done = [each for each in chosen if (each.letter.place, each.letter.index) not in failed]
            return replace(progress, positions={attempt_of(each): 1 for each in done})

        rows = self.output_and_progress(replace(batch, letters=hear, complete=complete), progress)
        again = [(each, failed[key]) for each in chosen if (key := (each.letter.place, each.letter.index)) in failed]
        self._letters.settle(complete(progress))
        self._letters.failed(again)
        return rows, len(again)

    def _same(self, rules: str) -> Snapshot:
        """The newest snapshot, if files written by these rules still fit it."""
        snapshot = self._claim.standing()
        if snapshot is None or snapshot.rules != rules:
            raise AttemptAborted("the table's columns or rules changed while the batch was written: it runs again")
        return snapshot

    def _advance(self, progress: Progress) -> None:
        snapshot = self._claim.standing()
        self._refuse_older(progress)
        self._claim.commit(snapshot, progress)

    def _refuse_older(self, progress: Progress) -> None:
        held = self._claim.held.progress
        if held is not None and progress.sequence <= held.sequence:
            raise InvariantError(
                f"pipeline {self._identity.name}: progress number {progress.sequence} was to be recorded after number "
                f"{held.sequence}. Nothing of it is recorded. Next: start the pipeline again."
            )

    def _record_from_timer(self, progress: Progress) -> None:
        with self._committing:
            held = self._claim.held.progress
            if held is None or progress.sequence > held.sequence:
                self.progress(progress)

    def _settle_doubt(self) -> None:
        if self._claim.doubt is not None:
            self._claim.resolve()


def matches(recorded: Progress, wanted: Progress) -> bool:
    """Whether a commit, whose outcome was unknown, is the one of `wanted`."""
    return _place(recorded) == _place(wanted)


def _place(progress: Progress) -> tuple[Any, ...]:
    positions = None if progress.positions is None else dict(progress.positions)
    return progress.instance, progress.query_id, progress.batch_id, progress.sequence, positions


def unreadable(told: Mapping[str, Any], where: str) -> UndeliverableRow:
    error = UndeliverableRow(
        f"a record cannot be read: {told['reason']}. It is at topic {told['topic']}, partition {told['partition']}, "
        f"offset {told['offset']}. Nothing of its batch was delivered to {where}. Next: repair it, or set "
        'on_error="dead-letter" to put such records aside.'
    )
    error.located = True
    return error


def _rows(files: Sequence[WrittenFile]) -> int:
    return sum(file.rows for file in files)
