"""An open database sink: output and ledger in one transaction, and every unknown outcome resolved before going on.

The same for every database; what differs between them stands behind `Store`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from atonce.backoff import Backoff
from atonce.connectors.sql.beside.letters import Again
from atonce.connectors.sql.ledger import LedgerMoved, LedgerRow, SqlLedger, matches
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.events import Aborted, Committed, Committing, Event, OutputDone, ProgressDone, Retrying
from atonce.delivery.letters import Kept
from atonce.delivery.moving.backfill import refuse_overlap
from atonce.delivery.progress import Plan, Progress
from atonce.delivery.timer import AUTO_COMMIT_INTERVAL_S, TimedCommits
from atonce.errors import AttemptAborted, LedgerMismatch, OutcomeUnknown, RetriableError, UndeliverableRow
from atonce.guarantee import Guarantee

RESOLVE_LIMIT_S = 60.0
"""How long a lost database may take to come back before the engine is told; the doubt is kept until then and after."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0

_log = logging.getLogger("atonce")
_Result = TypeVar("_Result")


class _TakenBack(Exception):
    """Ends a transaction that was only a trial."""


class Store(Protocol):
    """One database: connections, transactions, and how a batch is written inside one."""

    @property
    def output(self) -> str:
        """The table, as dead letters name it."""

    def connect(self) -> Any:
        """A new connection outside any transaction. `RetriableError` when the database does not answer."""

    def begin(self, connection: Any) -> None: ...

    def commit(self, connection: Any) -> None:
        """Raises `OutcomeUnknown` when the answer was lost, anything else when it certainly did not commit."""

    def rollback(self, connection: Any) -> None: ...

    def close(self, connection: Any) -> None: ...

    def prepare(self, connection: Any, ledger: SqlLedger) -> None:
        """Inside a transaction: make the ledger's table if it is missing, carry it over if it is an older one."""

    def accepts(self, connection: Any, schema: Any) -> None:
        """Inside a transaction that is taken back: `UsageError` if rows of this schema do not fit the table."""

    def write(self, connection: Any, batch: Batch) -> int:
        """Inside a transaction: write the batch's rows, and return how many."""

    def mark(self, connection: Any, again: Again) -> None:
        """Inside a transaction: what became of replayed dead letters, on them."""

    def translate(self, error: Exception) -> Exception:
        """The database's error in our own words: who must act."""


@runtime_checkable
class FusesRows(Protocol):
    """A store whose part of a delivery can run in the source's tasks."""

    def fuse(self, connection: Any, transform: Any, schema: str) -> tuple[Any, str] | None:
        """Inside a transaction: what delivers `transform`'s rows from within the source, and what it gives."""


@runtime_checkable
class MadeByConnecting(Protocol):
    """A store whose database comes into being with the first connection."""

    def nowhere(self) -> Any | None:
        """Where there is none yet: a connection to an empty one that leaves nothing behind."""


class OpenSqlSink:
    """`OpenSink` over a `Store`. One connection for deliveries, one for the timer; both made when first needed."""

    def __init__(
        self,
        identity: Identity,
        store: Store,
        ledger: SqlLedger,
        *,
        timer_interval_s: float = AUTO_COMMIT_INTERVAL_S,
    ) -> None:
        self._identity = identity
        self._store = store
        self._ledger = ledger
        self._resolve_limit_s = RESOLVE_LIMIT_S
        self._connection: Any = None
        self._doubt: Progress | None = None
        self._again: Again | None = None
        self._claimed = identity.claimed
        self._timer = TimedCommits(self._record_from_timer, timer_interval_s)
        self._timer_connection: Any = None
        self._recording = threading.RLock()
        """Held while the ledger moves: the timer's thread and the delivery's both record progress."""
        self._closing = threading.Event()

    def claim(self) -> Progress | None:
        def work(connection: Any) -> Progress | None:
            self._store.prepare(connection, self._ledger)
            # A second claim by the same instance must not take the pipeline back from one that replaced it.
            return self._ledger.reclaim(connection) if self._claimed else self._ledger.claim(connection)

        with self._recording:
            recorded = self._until_answered(work)
            self._claimed = True
            self._doubt = None
            return recorded if recorded is not None and recorded.sequence > 0 else None

    def peek(self) -> Progress | None:
        found: Progress | None = None

        def work(connection: Any) -> None:
            nonlocal found
            self._store.prepare(connection, self._ledger)
            row = self._ledger.read(connection)
            found = row.progress if row is not None and row.progress.sequence > 0 else None
            raise _TakenBack

        nowhere = self._store.nowhere() if isinstance(self._store, MadeByConnecting) else None
        if nowhere is not None:
            self._store.close(nowhere)
            return None
        with contextlib.suppress(_TakenBack):
            self._until_answered(work)
        return found

    @property
    def replaced(self) -> tuple[str, int] | None:
        return self._ledger.before

    def check_claim(self) -> None:
        with self._recording:
            self._transaction(self._ledger.check)

    def output(self, batch: Batch) -> int | None:
        if self._identity.guarantee is Guarantee.NONE:
            return self._transaction(lambda connection: self._write(connection, batch))

        def work(connection: Any) -> tuple[int, LedgerRow]:
            return self._write(connection, batch), self._ledger.mark(connection)

        with self._recording:
            try:
                rows, marked = self._transaction(work)
            except LedgerMoved:
                self._until_answered(self._ledger.check)
                raise
            except OutcomeUnknown:
                went_back = self._resolved()[1]
                if went_back is not None:
                    raise went_back from None
                raise
            self._ledger.marked(marked)
            return rows

    def progress(self, progress: Progress) -> None:
        with self._recording:
            try:
                # Sent again after a lost answer it meets itself, which `answer` recognises.
                self._until_answered(lambda connection: self._ledger.advance(connection, progress))
            except LedgerMoved:
                self._until_answered(lambda connection: self._ledger.answer(connection, progress))
            self._ledger.acknowledged(progress)

    def progress_on_timer(self, progress: Progress) -> None:
        self._timer.submit(progress)

    def output_and_progress(self, batch: Batch, progress: Progress) -> int | None:
        with self._recording:
            return self._in_one_transaction(batch, progress)

    def _in_one_transaction(self, batch: Batch, progress: Progress) -> int | None:
        if self._doubt is not None:
            done = self._is_in(self._doubt, batch)
            if done is not None and matches(done, progress):
                self._ledger.acknowledged(done)
                batch.complete(done)
                return None
        wanted = progress

        def work(connection: Any) -> int:
            nonlocal wanted
            if self._again is not None:
                self._again.begin()
            rows = self._write(connection, batch)
            if self._again is not None:
                self._store.mark(connection, self._again)
            batch.watch(OutputDone(rows=rows))
            wanted = batch.complete(progress)
            self._ledger.advance(connection, wanted)
            batch.watch(ProgressDone())
            return rows

        rows: int | None = None
        try:
            rows = self._transaction(work, batch.watch, lambda: wanted)
        except OutcomeUnknown:
            if self._is_in(wanted, batch) is None:
                batch.watch(Aborted(why="the commit did not arrive"))
                raise AttemptAborted(
                    f"pipeline {self._identity.name}: the connection was lost at COMMIT of batch {progress.batch_id}; "
                    "the ledger shows that it did not arrive, so nothing of it is visible. It runs again."
                ) from None
        except LedgerMoved:
            # Whatever the answer, these rows are not in: their transaction ended with the condition.
            self._until_answered(lambda connection: self._ledger.answer(connection, wanted))
        except RetriableError as error:
            batch.watch(Aborted(why=str(error)))
            raise
        self._ledger.acknowledged(wanted)
        batch.watch(Committed(rows=rows))
        return rows

    def _write(self, connection: Any, batch: Batch) -> int:
        rows = self._store.write(connection, batch)
        below = self._identity.below
        if below is not None:
            live = self._ledger.read(connection, below)
            refuse_overlap(below, None if live is None else live.progress, batch.plan)
        return rows

    def deliver_letters(self, batch: Batch, progress: Progress, chosen: Sequence[Kept]) -> tuple[int | None, int]:
        """The rows of these letters and the marks on them in one transaction: how many rows, and letters that failed
        again. Each letter is delivered once, whatever happens."""
        again = self._again = Again([each.letter for each in chosen], self._identity.pipeline, self._store.output)
        try:
            rows = self.output_and_progress(replace(batch, letters=again.hear), progress)
        finally:
            self._again = None
        return rows, again.failed_again

    def fused(self, transform: Any, schema: str) -> tuple[Any, str] | None:
        """What delivers an Arrow transform's rows from inside the source's tasks, if this database can."""
        store = self._store
        if not isinstance(store, FusesRows):
            return None
        return self._until_answered(lambda connection: store.fuse(connection, transform, schema))

    def accepts(self, schema: Any) -> None:
        """Refuse, before anything starts, columns that do not fit the table, its key or its order."""

        nowhere = self._store.nowhere() if isinstance(self._store, MadeByConnecting) else None
        if nowhere is not None:
            try:
                self._store.accepts(nowhere, schema)
            finally:
                self._store.close(nowhere)
            return

        def work(connection: Any) -> None:
            self._store.accepts(connection, schema)
            raise _TakenBack

        with contextlib.suppress(_TakenBack):
            self._until_answered(work)

    def refuses(self, df: Any, encoded: bool) -> bool:
        """Whether a row of `df` cannot be delivered: it is written, and taken back."""

        def work(connection: Any) -> None:
            plan = Plan(query_id="", batch_id=-1, start={}, end={})
            self._store.write(connection, Batch(df=df, plan=plan, encoded=encoded))
            raise _TakenBack

        try:
            self._transaction(work)
        except UndeliverableRow:
            return True
        except _TakenBack:
            pass
        return False

    def settle(self) -> None:
        """Rows are visible once their transaction is answered; what can be behind is the timer."""
        self._timer.tick()

    def close(self) -> None:
        self._closing.set()
        try:
            self._timer.close()
        except Exception as error:
            _log.warning("pipeline %s: its last progress was not recorded: %s", self._identity.name, error)
        finally:
            self._drop()
            connection, self._timer_connection = self._timer_connection, None
            if connection is not None:
                self._store.close(connection)

    def _transaction(
        self,
        work: Callable[[Any], _Result],
        watch: Callable[[Event], None] | None = None,
        doubted: Callable[[], Progress] | None = None,
    ) -> _Result:
        """One transaction. Whatever is raised before COMMIT is sent means that nothing of it is visible."""
        try:
            if self._connection is None:
                self._connection = self._store.connect()
            connection = self._connection
            self._store.begin(connection)
            result = work(connection)
            if watch is not None:
                watch(Committing())
        except BaseException as error:
            self._roll_back()
            if isinstance(error, Exception):
                raise self._store.translate(error) from error
            raise
        if doubted is not None:
            self._doubt = doubted()  # from here on, whatever interrupts us, the next delivery asks the ledger first
        try:
            self._store.commit(connection)
        except OutcomeUnknown:
            self._drop()
            raise
        except Exception as error:
            self._roll_back()
            if doubted is not None:
                self._doubt = None
            raise self._store.translate(error) from error
        except BaseException:
            self._drop()
            raise
        if doubted is not None:
            self._doubt = None
        return result

    def _is_in(self, progress: Progress, batch: Batch) -> Progress | None:
        """Resolve a commit in doubt: raise our epoch, which waits for it or shuts it out, then compare."""
        batch.watch(Retrying(why="a commit's outcome is unknown; asking the ledger", in_doubt=True))
        recorded, went_back = self._resolved()
        self._doubt = None
        if matches(recorded, progress):
            return recorded
        if went_back is not None:
            raise went_back
        return None

    def _resolved(self) -> tuple[Progress, LedgerMismatch | None]:
        left = self._ledger.left_at
        return self._until_answered(lambda connection: self._ledger.resolve(connection, left))

    def _until_answered(self, work: Callable[[Any], _Result]) -> _Result:
        """Run a transaction that may safely run twice until the database answers, within a limit."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._resolve_limit_s)
        while True:
            try:
                return self._transaction(work)
            except RetriableError as error:
                self._drop()
                if self._closing.is_set() or backoff.over:
                    raise
                _log.info("pipeline %s: %s; trying again", self._identity.name, error)
                backoff.wait(self._closing)

    def _record_from_timer(self, progress: Progress) -> None:
        with self._recording:
            if self._ledger.is_behind(progress):
                return
            try:
                self._on_timer_connection(lambda connection: self._ledger.advance(connection, progress))
            except LedgerMoved:
                self._on_timer_connection(lambda connection: self._ledger.answer(connection, progress))
            self._ledger.acknowledged(progress)

    def _on_timer_connection(self, work: Callable[[Any], None]) -> None:
        try:
            if self._timer_connection is None:
                self._timer_connection = self._store.connect()
            self._store.begin(self._timer_connection)
            work(self._timer_connection)
            self._store.commit(self._timer_connection)
        except Exception as error:
            connection, self._timer_connection = self._timer_connection, None
            if connection is not None:
                self._store.close(connection)
            raise self._store.translate(error) from error

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._store.rollback(self._connection)
            except Exception:
                self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                self._store.close(connection)
