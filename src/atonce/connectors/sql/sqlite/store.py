"""SQLite behind the SQL delivery: connections, transactions, and one batch written inside one of them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from atonce.connectors.sql.arrow_task import ArrowTask
from atonce.connectors.sql.bad_rows import bad_row, undeliverable
from atonce.connectors.sql.beside.letters import Again, Keeping, LetterTable, all_aside, is_older, kept_as
from atonce.connectors.sql.job import require_input_order, run_into
from atonce.connectors.sql.ledger import SqlLedger
from atonce.connectors.sql.memory import MemoryClock, give_to_the_table
from atonce.connectors.sql.rows_in import Intake
from atonce.connectors.sql.sqlite.merge import (
    DECIMALS,
    STAGING,
    compare_decimals,
    create_deleted,
    create_newest,
    create_seen,
    drop_seen_before,
    in_order,
    listed,
    merge,
    quoted,
    remember_seen,
)
from atonce.connectors.sql.sqlite.target import SqliteTarget, resolve, table_columns, values
from atonce.connectors.sql.task import Deletes
from atonce.delivery.contract import Batch, Identity
from atonce.errors import AtOnceError, AttemptAborted, OutcomeUnknown, RefusedError, RetriableError, UndeliverableRow
from atonce.spark.arrow_job import ArrowJobs
from atonce.spark.channel import Place

if TYPE_CHECKING:
    from atonce.connectors.sql.sqlite.sink import SQLite

_BUSY_TIMEOUT_S = 30.0
_LETTER_TYPES = {"text": "TEXT", "int": "INTEGER", "bytes": "BLOB", "time": "TEXT"}


def connect(path: str) -> sqlite3.Connection:
    """A connection outside any transaction; its commits are on disk when they return."""
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.create_collation(DECIMALS, compare_decimals)
    except BaseException:
        connection.close()
        raise
    return connection


def letter_table(sink: SQLite) -> LetterTable:
    return LetterTable(name=quoted(sink.letters_beside(sink.table)), types=_LETTER_TYPES)


class SqliteStore:
    """`Store` for SQLite. The intake's threads write through the delivery's connection, one at a time."""

    def __init__(self, sink: SQLite, identity: Identity, spark: Any) -> None:
        self._sink = sink
        self._pipeline = identity.pipeline
        self._source = identity.source
        self._spark = spark
        self._secret = Place.of(spark).new_secret()
        self._jobs = ArrowJobs()
        self._numbers = MemoryClock(sink.keep_s)
        self._deletions = MemoryClock(sink.deletes_keep_s)

    @property
    def output(self) -> str:
        return self._sink.table

    def connect(self) -> sqlite3.Connection:
        try:
            return connect(str(self._sink.path))
        except sqlite3.OperationalError as error:
            raise RetriableError(f"SQLite file {self._sink.path} cannot be opened: {error}") from error

    def nowhere(self) -> sqlite3.Connection | None:
        return None if self._sink.exists() else connect(":memory:")

    def begin(self, connection: sqlite3.Connection) -> None:
        # IMMEDIATE: the write lock is taken now, so what is read from here on is what the commit builds on.
        connection.execute("BEGIN IMMEDIATE")

    def commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                raise  # it is still open, so it certainly did not commit
            raise OutcomeUnknown(f"SQLite did not say whether COMMIT is on disk: {error}") from error

    def rollback(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def close(self, connection: sqlite3.Connection) -> None:
        connection.close()

    def prepare(self, connection: sqlite3.Connection, ledger: SqlLedger) -> None:
        ledger.create(connection)
        if ledger.is_older(connection):
            ledger.carry_over(connection)

    def accepts(self, connection: sqlite3.Connection, schema: Any) -> None:
        self.target(connection, schema)

    def target(self, connection: sqlite3.Connection, schema: Any) -> SqliteTarget:
        return resolve(connection, self._sink, schema)

    def write(self, connection: sqlite3.Connection, batch: Batch) -> int:
        target = self.target(connection, batch.df.schema)
        require_input_order(batch, self._sink, self._sink.table)
        writer = Writer(connection, target, batch)
        intake = Intake.for_session(writer.take, self._spark, self._secret)
        run_into(intake, self._jobs, batch, target.selected, self.task(target), self._sink.table)
        return self.finish(connection, batch, writer, intake.found.dead)

    def task(self, target: SqliteTarget) -> ArrowTask:
        """What the tasks do for this table."""
        return ArrowTask(
            secret=self._secret,
            names=tuple(target.selected),
            required=target.required,
            ordered=frozenset(target.places),
            dead_letter=self._sink.on_error == "dead-letter",
            deletes=Deletes.of(self._sink),
        )

    def finish(
        self, connection: sqlite3.Connection, batch: Batch, writer: Writer, dead: Sequence[dict[str, Any]] = ()
    ) -> int:
        """What `writer` has taken, into the table; `dead` is put aside with what SQLite refuses."""
        if writer.target.staged:
            self._merge(connection, writer)
        self._put_aside(connection, batch, [*dead, *writer.dead])
        return writer.rows

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, AtOnceError) or not isinstance(error, sqlite3.Error):
            return error
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError)):
            return UndeliverableRow(f"SQLite refused a row for {self._sink.table}: {error}")
        if getattr(error, "sqlite_errorname", "").startswith(
            ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL")
        ):
            return AttemptAborted(f"SQLite file {self._sink.path}: {error}. Nothing of this attempt is visible.")
        return RefusedError(f"SQLite file {self._sink.path} refused: {error}")

    def _merge(self, connection: sqlite3.Connection, writer: Writer) -> None:
        target = writer.target
        if self._sink.dedupe is not None:
            connection.execute(create_seen(target))
            if "pipeline" in table_columns(connection, target.seen.strip('"')):
                give_to_the_table(connection.execute, target.seen, create_seen(target))
            seen_at = self._aged(connection, self._numbers, target.seen, "seen_at")
            connection.execute(drop_seen_before(target))
            connection.execute(remember_seen(target), {"seen_at": seen_at})
        deletion = {}
        if self._sink.delete is not None:
            connection.execute(create_newest())
        if self._sink.remembers_deletes:
            connection.execute(create_deleted(target, target.collations))
            at = self._aged(connection, self._deletions, target.deleted, "deleted_at")
            deletion = {"deleted_at": at}
        writer.merge(deletion)
        connection.execute(f"DROP TABLE {STAGING}")

    def _aged(self, connection: sqlite3.Connection, clock: MemoryClock, table: str, column: str) -> float:
        """A memory without what is too old. Returns its time."""

        def found() -> tuple[float | None, float]:
            newest = connection.execute(f"SELECT max({column}) FROM {table}").fetchone()
            return newest[0], time.time()

        def move_up(by_s: float) -> None:
            connection.execute(f"UPDATE {table} SET {column} = {column} + :by", {"by": by_s})

        now = clock.read(found, move_up)
        oldest = clock.oldest(now)
        if oldest is not None:
            connection.execute(f"DELETE FROM {table} WHERE {column} < :oldest", {"oldest": oldest})
        return now

    def mark(self, connection: sqlite3.Connection, again: Again) -> None:
        again.mark(letter_table(self._sink), lambda sql, values: connection.execute(sql, values).rowcount)

    def _put_aside(self, connection: sqlite3.Connection, batch: Batch, dead: list[dict[str, Any]]) -> None:
        found = all_aside(batch, self._sink, self._sink.table, dead)
        name = self._sink.letters_beside(self._sink.table)
        there = list(table_columns(connection, name))
        older = is_older(there)
        keeping = Keeping(
            table=letter_table(self._sink),
            names=(self._pipeline, self._sink.table),
            source=self._source,
            run=connection.execute,
            many=connection.executemany,
        )
        if there and not older:
            keeping.take_back(batch)
        if not found:
            return
        if older:
            connection.execute(f"ALTER TABLE {quoted(name)} RENAME TO {quoted(kept_as(name))}")
        connection.execute(keeping.table.create())
        keeping.keep(batch, found)


class Writer:
    """Takes the tasks' frames into the open transaction, and from the staging table on."""

    def __init__(self, connection: sqlite3.Connection, target: SqliteTarget, batch: Batch) -> None:
        self.rows = 0
        self.dead: list[dict[str, Any]] = []
        self.target = target
        self._connection = connection
        self._batch = batch
        self._insert = target.insert()
        if target.staged:
            connection.execute(f"DROP TABLE IF EXISTS {STAGING}")
            connection.execute(target.create_staging())

    def take(self, frame: Any) -> None:
        table = pa.ipc.open_stream(pa.py_buffer(frame)).read_all()
        wanted = table.columns if self.target.staged else table.columns[: len(self.target.written)]
        rows = list(zip(*[values(column) for column in wanted], strict=True))
        self._connection.execute("SAVEPOINT atonce_frame")
        try:
            self._connection.executemany(self._insert, rows)
            self.rows += len(rows)
        except sqlite3.IntegrityError:
            self._connection.execute("ROLLBACK TO atonce_frame")
            for index, row in enumerate(rows):
                self._take_one(partial(self._insert_one, row), partial(_row_of, table, index))
        self._connection.execute("RELEASE atonce_frame")

    def merge(self, parameters: Mapping[str, Any]) -> None:
        """Everything staged, into the table."""
        try:
            self.rows = self._merge_part(parameters, "TRUE")
        except sqlite3.IntegrityError:
            self._one_by_one(parameters)

    def _merge_part(self, parameters: Mapping[str, Any], where: str) -> int:
        """All statements of a merge, or none of them."""
        self._connection.execute("SAVEPOINT atonce_part")
        changed = 0
        try:
            for statement, counts in merge(self.target, where):
                given = parameters if ":deleted_at" in statement else {}
                found = self._connection.execute(statement, given).rowcount
                changed += found if counts else 0
        except sqlite3.Error:
            self._connection.execute("ROLLBACK TO atonce_part")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE atonce_part")
        return changed

    def _one_by_one(self, parameters: Mapping[str, Any]) -> None:
        """The staged rows again, each by itself and in order, so that the refused ones are known."""
        self.rows = 0
        names = listed(self.target.selected)
        for (place,) in self._connection.execute(in_order(self.target)).fetchall():
            select = f"SELECT {names} FROM {STAGING} WHERE rowid = ?"
            found = self._connection.execute(select, (place,)).fetchone()
            row = dict(zip(self.target.selected, found, strict=True))
            taken = self._take_one(partial(self._merge_part, parameters, f"rowid = {int(place)}"), row.copy)
            if not taken and (number := self.target.sink.dedupe) is not None:
                # Its message was not dealt with: it must be taken when its letter is replayed.
                self._connection.execute(f"DELETE FROM {self.target.seen} WHERE number = ?", (row[number],))

    def _insert_one(self, row: Any) -> int:
        return self._connection.execute(self._insert, row).rowcount

    def _take_one(self, write: Callable[[], int], row: Callable[[], dict[str, Any]]) -> bool:
        try:
            self.rows += write()
            return True
        except sqlite3.IntegrityError as error:
            found = row()
            bad = bad_row({name: found.get(name) for name in self.target.selected}, str(error))
            if self.target.sink.on_error == "stop":
                raise undeliverable(bad, self.target.sink.table, self._batch) from error
            self.dead.append(bad)
            return False


def _row_of(table: Any, index: int) -> dict[str, Any]:
    found: dict[str, Any] = table.slice(index, 1).to_pylist()[0]
    return found
