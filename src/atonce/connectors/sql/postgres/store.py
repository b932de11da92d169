"""PostgreSQL behind the SQL delivery: connections, transactions, and one batch written inside one of them.

Append without dedupe: the tasks' rows go straight into one COPY of the table. Otherwise, and whenever the server
refuses a row that is to be put aside, they go into a temporary staging table of the connection and from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from atonce.connectors.sql.beside.letters import Again
from atonce.connectors.sql.job import require_input_order
from atonce.connectors.sql.ledger import SqlLedger
from atonce.connectors.sql.memory import MemoryClock, give_to_the_table, refuse_numbers_of_two
from atonce.connectors.sql.postgres.fused import FusedTask
from atonce.connectors.sql.postgres.making import lock_for_create
from atonce.connectors.sql.postgres.merge import create_deleted, create_seen, cut_seen_table
from atonce.connectors.sql.postgres.names import qualified
from atonce.connectors.sql.postgres.rows import Copied, copy_rows, copy_task, refuses_row, words
from atonce.connectors.sql.postgres.staging import (
    letter_table,
    merge,
    move_up,
    newest_and_now,
    prune_deleted,
    prune_seen,
    put_aside,
)
from atonce.connectors.sql.postgres.target import Target, resolve
from atonce.connectors.sql.postgres.types import inspect
from atonce.connectors.sql.rows_in import RESULT_SCHEMA
from atonce.delivery.contract import Batch, Identity
from atonce.errors import AtOnceError, AttemptAborted, OutcomeUnknown, RefusedError, RetriableError, UndeliverableRow
from atonce.spark.arrow_job import ArrowJobs, parsed
from atonce.spark.channel import Place

if TYPE_CHECKING:
    from atonce.connectors.sql.postgres.sink import Postgres

_CONNECT_TIMEOUT_S = 10
_SESSION = (
    # Whatever the database's defaults: the fenced UPDATE must see the row as it is after waiting for its lock.
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE",
    # A driver that vanished with its machine must not hold the ledger's row for hours.
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET client_min_messages = warning",
)
_REFUSED_AT_COMMIT = ("22", "23", "44", "P0")
"""Classes of errors that deferred constraints and triggers raise."""
_ROLLED_BACK = ("40001", "40002", "40P01", "25P02")
_MERGE_MEMORY = "64MB"


def connect(url: str) -> psycopg.Connection[Any]:
    """A connection outside any transaction, with the settings a delivery needs."""
    connection: psycopg.Connection[Any] = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=_CONNECT_TIMEOUT_S,
        application_name="atonce",
        client_encoding="UTF8",
        keepalives_idle=30,
        keepalives_interval=10,
        keepalives_count=3,
        tcp_user_timeout=60_000,
    )
    try:
        connection.execute("; ".join(_SESSION).encode())
        if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
            connection.execute("SET synchronous_commit = on")
    except BaseException:
        connection.close()
        raise
    return connection


class PostgresStore:
    """`Store` for PostgreSQL."""

    def __init__(self, sink: Postgres, identity: Identity, spark: Any) -> None:
        self._sink = sink
        self._pipeline = identity.pipeline
        self._source = identity.source
        self._spark = spark
        self._numbers = MemoryClock(sink.keep_s)
        self._deletions = MemoryClock(sink.deletes_keep_s)
        self._secret = Place.of(spark).new_secret()
        self._jobs = ArrowJobs()
        self._fused: tuple[Target, Any] | None = None

    @property
    def output(self) -> str:
        return self._sink.table

    def connect(self) -> psycopg.Connection[Any]:
        try:
            return connect(self._sink.url)
        except psycopg.OperationalError as error:
            raise RetriableError(f"PostgreSQL at {self._sink.where} does not answer: {words(error)}") from error

    def begin(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("BEGIN")

    def commit(self, connection: psycopg.Connection[Any]) -> None:
        try:
            answer = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if connection.broken or connection.closed or not _certainly_failed(error.sqlstate):
                raise OutcomeUnknown(f"the answer to COMMIT was lost: {words(error)}") from error
            raise
        if answer != "COMMIT":
            # PostgreSQL answers COMMIT in a failed transaction with ROLLBACK, and no error.
            raise AttemptAborted(f"PostgreSQL answered COMMIT with {answer}: the transaction had failed before")

    def rollback(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("ROLLBACK")

    def close(self, connection: psycopg.Connection[Any]) -> None:
        connection.close()

    def prepare(self, connection: psycopg.Connection[Any], ledger: SqlLedger) -> None:
        # Asked first: CREATE … IF NOT EXISTS needs the right to create even where nothing is to be created.
        if not _there(connection, ledger.table):
            lock_for_create(connection)
            ledger.create(connection)
        if ledger.is_older(connection):
            lock_for_create(connection)
            self._carry_over(connection, ledger)

    def accepts(self, connection: psycopg.Connection[Any], schema: Any) -> None:
        self.target(connection, schema)

    def write(self, connection: psycopg.Connection[Any], batch: Batch) -> int:
        target = self.target(connection, self._schema(batch))
        self._refuse_changed(batch, target)
        require_input_order(batch, self._sink, self._sink.table)
        if target.staged:
            return self._stage_and_merge(connection, batch, target)
        if not self._sink.puts_aside:
            rows = self._copy(connection, batch, target, staged=False).rows
            self._put_aside(connection, target, batch, ())
            return rows
        connection.execute("SAVEPOINT atonce_rows")
        try:
            copied = self._copy(connection, batch, target, staged=False)
        except psycopg.Error as error:
            if not refuses_row(error):
                raise
            # The server refused a row, and COPY is all or nothing: once more, by way of the staging table.
            connection.execute("ROLLBACK TO SAVEPOINT atonce_rows")
            return self._stage_and_merge(connection, batch, target)
        self._put_aside(connection, target, batch, copied.dead)
        return copied.rows

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, AtOnceError) or not isinstance(error, psycopg.Error):
            return error
        said = words(error)
        if refuses_row(error):
            return UndeliverableRow(f"PostgreSQL refused a row for {self._sink.table}: {said}")
        if error.sqlstate is None or isinstance(error, psycopg.OperationalError):
            # Connection lost, shut down, deadlock, serialisation, disk full: COMMIT was not sent, nothing is visible.
            return AttemptAborted(f"PostgreSQL at {self._sink.where}: {said}. Nothing of this attempt is visible.")
        return RefusedError(f"PostgreSQL at {self._sink.where} refused: {said}")

    def fuse(self, connection: psycopg.Connection[Any], transform: Any, schema: str) -> tuple[FusedTask, str] | None:
        """Inside a transaction: what delivers `transform`'s rows from within the source, and what it gives."""
        if not self._sink.fuses:
            return None
        declared = parsed(schema)
        target = self.target(connection, declared)
        self._fused = (target, declared)
        task = copy_task(target, self._secret, staged=target.staged)
        return FusedTask(transform=transform, schema=declared, task=task), RESULT_SCHEMA

    def _schema(self, batch: Batch) -> Any:
        return self._fused[1] if batch.encoded and self._fused else batch.df.schema

    def _refuse_changed(self, batch: Batch, target: Target) -> None:
        """Tasks inside the source encode for the table as it was when the pipeline started."""
        if batch.encoded and self._fused and target != self._fused[0]:
            raise RefusedError(
                f"the columns of table {self._sink.table} changed while the pipeline ran. Nothing of this batch was "
                "delivered. Next: start the pipeline again; it goes on with the table as it is now."
            )

    def _copy(self, connection: psycopg.Connection[Any], batch: Batch, target: Target, *, staged: bool) -> Copied:
        return copy_rows(connection, self._jobs, batch, target, staged=staged, secret=self._secret)

    def target(self, connection: psycopg.Connection[Any], schema: Any) -> Target:
        if self._sink.create and not _there(connection, qualified(self._sink.table)):
            lock_for_create(connection)
        return resolve(connection, self._sink, schema)

    def _stage_and_merge(self, connection: psycopg.Connection[Any], batch: Batch, target: Target) -> int:
        connection.execute(target.create_staging().encode())
        copied = self._copy(connection, batch, target, staged=True)
        return self.merge_staged(connection, batch, target, copied.dead)

    def merge_staged(
        self, connection: psycopg.Connection[Any], batch: Batch, target: Target, dead: Sequence[Any] = ()
    ) -> int:
        """Everything in the staging table, into the table; `dead` is put aside with what the server refuses."""
        values: dict[str, Any] = {}
        if self._sink.dedupe is not None:
            values["seen_at"] = self._prepare_seen(connection, target)
        if self._sink.remembers_deletes:
            values["deleted_at"] = self._prepare_deleted(connection, target)
        # The merge sorts the batch; with the server's default of 4 MB it would do so on disk.
        connection.execute(f"SET LOCAL work_mem = '{_MERGE_MEMORY}'".encode())
        rows, refused = merge(connection, batch, target, values)
        self._put_aside(connection, target, batch, [*dead, *refused])
        return rows

    def mark(self, connection: psycopg.Connection[Any], again: Again) -> None:
        again.mark(letter_table(self._sink), lambda sql, values: connection.execute(sql.encode(), values).rowcount)

    def _put_aside(
        self, connection: psycopg.Connection[Any], target: Target, batch: Batch, dead: Sequence[Any]
    ) -> None:
        put_aside(connection, target, self._pipeline, self._source, batch, dead)

    def _prepare_seen(self, connection: psycopg.Connection[Any], target: Target) -> float:
        """The numbers' memory, made if it is missing, and without what is too old. Returns its time."""
        if not _there(connection, target.seen):
            lock_for_create(connection)
            connection.execute(create_seen(target).encode())
            cut = cut_seen_table(target.sink.table)
            if cut is not None and _there(connection, cut):
                # Of all pipelines: the others will find the new table there.
                refuse_numbers_of_two(lambda sql: connection.execute(sql.encode()), cut)
                copy = f"INSERT INTO {target.seen} (number, seen_at) SELECT number, seen_at FROM {cut}"
                connection.execute(copy.encode())
        elif "pipeline" in inspect(connection, target.seen):
            lock_for_create(connection)
            self._carry_numbers_over(connection, target)
        now = self._time(connection, self._numbers, (target.seen, "seen_at"))
        oldest = self._numbers.oldest(now)
        if oldest is not None:
            prune_seen(connection, target, oldest)
        return now

    def _carry_numbers_over(self, connection: psycopg.Connection[Any], target: Target) -> None:
        if "pipeline" not in inspect(connection, target.seen):
            return  # another pipeline did it while we waited for the lock
        try:
            # What an instance of the older version has under way is in before the numbers are read.
            connection.execute(f"LOCK TABLE {target.seen} IN ACCESS EXCLUSIVE MODE".encode())
            give_to_the_table(lambda sql: connection.execute(sql.encode()), target.seen, create_seen(target))
        except psycopg.errors.InsufficientPrivilege as error:
            raise RefusedError(
                f"the message numbers in {target.seen} at {self._sink.where} are of an older version, and this user "
                f"may not carry them over ({words(error)}). Next: let its owner run the pipeline once."
            ) from error

    def _time(self, connection: psycopg.Connection[Any], clock: MemoryClock, memory: tuple[str, str]) -> float:
        return clock.read(lambda: newest_and_now(connection, *memory), lambda by_s: move_up(connection, *memory, by_s))

    def _prepare_deleted(self, connection: psycopg.Connection[Any], target: Target) -> float:
        """The same for the memory of deletions, which belongs to the table: one pipeline merges into it at a time."""
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (target.deleted,))
        if not _there(connection, target.deleted):
            lock_for_create(connection)
            connection.execute(create_deleted(target).encode())
        now = self._time(connection, self._deletions, (target.deleted, "deleted_at"))
        oldest = self._deletions.oldest(now)
        if oldest is not None:
            prune_deleted(connection, target, oldest)
        return now

    def _carry_over(self, connection: psycopg.Connection[Any], ledger: SqlLedger) -> None:
        if not ledger.is_older(connection):
            return  # another pipeline did it while we waited for the lock
        try:
            ledger.carry_over(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise RefusedError(
                f"the ledger's table {ledger.table} at {self._sink.where} is of an older version, and this user may "
                f"not extend it ({words(error)}). Next: let its owner run: {ledger.carry_over_sql}"
            ) from error


def _certainly_failed(sqlstate: str | None) -> bool:
    """Errors at COMMIT that mean it did not take place. Any other is unknown: to ask the ledger is never wrong."""
    return sqlstate is not None and (sqlstate[:2] in _REFUSED_AT_COMMIT or sqlstate in _ROLLED_BACK)


def _there(connection: psycopg.Connection[Any], quoted_table: str) -> bool:
    return connection.execute("SELECT to_regclass(%s)", (quoted_table,)).fetchone() != (None,)
