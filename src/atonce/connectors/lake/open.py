"""An open lake sink: a batch is files that nobody sees, and then one commit that names them and the progress."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Sequence
from typing import Any

from atonce.connectors.lake.claim import Claim
from atonce.connectors.lake.job import run
from atonce.connectors.lake.parquet import WrittenFile
from atonce.connectors.lake.plans import PlanFiles, epoch_of
from atonce.connectors.lake.table import LakeTable, Snapshot
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.events import Aborted, Committed, Committing, OutputDone, ProgressDone, Retrying
from atonce.delivery.progress import Progress
from atonce.delivery.timer import AUTO_COMMIT_INTERVAL_S, TimedCommits
from atonce.errors import AttemptAborted, InvariantError, OutcomeUnknown, RetriableError
from atonce.guarantee import Guarantee
from atonce.spark.arrow_job import ArrowJobs

RESOLVE_LIMIT_S = 60.0
_TRIES = 3
_log = logging.getLogger("atonce")


class OpenLakeSink:
    """`OpenSink` over a `LakeTable`."""

    def __init__(
        self,
        identity: Identity,
        table: LakeTable,
        plans: PlanFiles,
        *,
        timer_interval_s: float = AUTO_COMMIT_INTERVAL_S,
        resolve_limit_s: float = RESOLVE_LIMIT_S,
    ) -> None:
        self._identity = identity
        self._table = table
        self._claim = Claim(identity, table, plans, resolve_limit_s)
        self._jobs = ArrowJobs()
        self._timer = TimedCommits(self._record_from_timer, timer_interval_s)
        self._committing = threading.RLock()
        """The timer's thread and the delivery's both commit."""

    def claim(self) -> Progress | None:
        with self._committing:
            return self._claim.take()

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
            snapshot.task(schema)

    def output(self, batch: Batch) -> int | None:
        """The output alone. Except at level none it is fenced: the commit repeats the progress that stands."""
        with self._committing:
            self._settle_doubt()
            files, rules = self._write(batch)
            snapshot = self._same(rules)
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
                batch.watch(Retrying(why="a commit's outcome is unknown; asking the table"))
                doubted = self._claim.doubt.progress
                if self._claim.resolve() and doubted is not None and matches(doubted, progress):
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
        files, rules = self._write(batch)
        rows = _rows(files)
        batch.watch(OutputDone(rows=rows))
        wanted = batch.complete(progress)
        self._refuse_older(wanted)

        def told() -> None:
            batch.watch(ProgressDone())
            batch.watch(Committing())

        self._claim.commit(self._same(rules), wanted, files, told)
        batch.watch(Committed(rows=rows))
        return rows

    def _write(self, batch: Batch) -> tuple[Sequence[WrittenFile], str]:
        """The batch as files, and the table's rules that they were written by. Nobody sees them yet."""
        snapshot = self._claim.standing()
        if snapshot is None:
            self._table.create(batch.df.schema, self._claim.held.number)
            snapshot = self._claim.standing()
            if snapshot is None:
                raise RetriableError("the table was made, and is gone again")
        held = self._claim.held.number
        safe = re.sub(r"[^A-Za-z0-9_]", "_", self._identity.name)
        attempt = f"{safe}-{epoch_of(held)}-{(held & 0xFFFFFFFF) + 1}-{uuid.uuid4().hex[:12]}"
        return run(self._jobs, batch, snapshot.task(batch.df.schema), attempt), snapshot.rules

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


def _rows(files: Sequence[WrittenFile]) -> int:
    return sum(file.rows for file in files)
