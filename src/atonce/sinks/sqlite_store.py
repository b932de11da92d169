"""SQLite behind the SQL delivery: connections, transactions, and one batch written inside one of them."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from atonce.errors import AtOnceError, AttemptAborted, OutcomeUnknown, RefusedError, RetriableError, UndeliverableRow
from atonce.ledger.sql import SqlLedger
from atonce.sinks.arrow_job import ArrowJobs
from atonce.sinks.contract import Batch, Identity
from atonce.sinks.driver_door import Place
from atonce.sinks.sql_arrow_task import ArrowTask
from atonce.sinks.sql_bad_rows import DEAD_LETTER_COLUMNS, bad_row, dead_letter_values, undeliverable
from atonce.sinks.sql_intake import Intake
from atonce.sinks.sql_job import require_input_order, run_into
from atonce.sinks.sqlite_target import STAGING, SqliteTarget, quoted, resolve, values

if TYPE_CHECKING:
    from atonce.sinks.sqlite import SQLite

_BUSY_TIMEOUT_S = 30.0
_DEAD_LETTER = """
CREATE TABLE IF NOT EXISTS {table} (pipeline TEXT NOT NULL, batch_id INTEGER NOT NULL, input_topic TEXT,
    input_partition INTEGER, input_offset INTEGER, reason TEXT NOT NULL, row_json TEXT NOT NULL)"""


def connect(path: str) -> sqlite3.Connection:
    """A connection outside any transaction; its commits are on disk when they return."""
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteStore:
    """`Store` for SQLite. The intake's threads write through the delivery's connection, one at a time."""

    def __init__(self, sink: SQLite, identity: Identity, spark: Any) -> None:
        self._sink = sink
        self._pipeline = identity.name
        self._spark = spark
        self._secret = Place.of(spark).new_secret()
        self._jobs = ArrowJobs()

    def connect(self) -> sqlite3.Connection:
        try:
            return connect(str(self._sink.path))
        except sqlite3.OperationalError as error:
            raise RetriableError(f"SQLite file {self._sink.path} cannot be opened: {error}") from error

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

    def write(self, connection: sqlite3.Connection, batch: Batch) -> int:
        target = resolve(connection, self._sink, batch.df.schema)
        if self._sink.mode == "upsert" and not self._sink.orders:
            require_input_order(batch, f"upsert into {self._sink.table}")
        if target.staged:
            connection.execute(f"DROP TABLE IF EXISTS {STAGING}")
            connection.execute(target.create_staging())
        writer = _Writer(connection, target, batch)
        intake = Intake.for_session(writer.take, self._spark, self._secret)
        task = ArrowTask(
            secret=self._secret,
            names=tuple(target.selected),
            required=target.required,
            dead_letter=self._sink.on_error == "dead-letter",
        )
        run_into(intake, self._jobs, batch, target.selected, task, self._sink.table)
        rows = self._merge(connection, batch, target, writer) if target.staged else writer.rows
        self._put_aside(connection, batch, [*intake.found.dead, *writer.dead])
        return rows

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

    def _merge(self, connection: sqlite3.Connection, batch: Batch, target: SqliteTarget, writer: _Writer) -> int:
        named = {"pipeline": self._pipeline, "now": time.time()}
        if self._sink.dedupe is not None:
            connection.execute(target.create_seen())
            if self._sink.keep_s is not None:
                oldest = {**named, "oldest": time.time() - self._sink.keep_s}
                connection.execute(
                    f"DELETE FROM {target.seen} WHERE pipeline = :pipeline AND seen_at < :oldest", oldest
                )
            connection.execute(target.drop_seen_before(), named)
            connection.execute(target.remember(), named)
        try:
            rows = connection.execute(target.merge()).rowcount
        except sqlite3.IntegrityError:
            rows = writer.one_by_one()
        connection.execute(f"DROP TABLE {STAGING}")
        return rows

    def _put_aside(self, connection: sqlite3.Connection, batch: Batch, dead: list[dict[str, Any]]) -> None:
        if not dead:
            return
        table = quoted(self._sink.dead_letter or f"{self._sink.table}_dead_letter")
        connection.execute(_DEAD_LETTER.format(table=table))
        places = ", ".join("?" * len(DEAD_LETTER_COLUMNS))
        rows = [dead_letter_values(bad, self._pipeline, batch.plan.batch_id) for bad in dead]
        connection.executemany(f"INSERT INTO {table} ({', '.join(DEAD_LETTER_COLUMNS)}) VALUES ({places})", rows)


class _Writer:
    """Takes the tasks' frames into the open transaction."""

    def __init__(self, connection: sqlite3.Connection, target: SqliteTarget, batch: Batch) -> None:
        self.rows = 0
        self.dead: list[dict[str, Any]] = []
        self._connection = connection
        self._target = target
        self._batch = batch
        self._insert = target.insert()

    def take(self, frame: Any) -> None:
        table = pa.ipc.open_stream(pa.py_buffer(frame)).read_all()
        wanted = table.columns if self._target.staged else table.columns[: len(self._target.written)]
        rows = list(zip(*[values(column) for column in wanted], strict=True))
        self._connection.execute("SAVEPOINT atonce_frame")
        try:
            self._connection.executemany(self._insert, rows)
            self.rows += len(rows)
        except sqlite3.IntegrityError:
            self._connection.execute("ROLLBACK TO atonce_frame")
            for index, row in enumerate(rows):
                self._take_one(self._insert, row, lambda i=index: table.slice(i, 1).to_pylist()[0])
        self._connection.execute("RELEASE atonce_frame")

    def one_by_one(self) -> int:
        """The staged rows again, each by itself and in order, so that the refused ones are known."""
        self.rows = 0
        names = ", ".join(quoted(name) for name in self._target.selected)
        for (place,) in self._connection.execute(self._target.in_order()).fetchall():
            select = f"SELECT {names} FROM {STAGING} WHERE rowid = ?"
            found = self._connection.execute(select, (place,)).fetchone()
            row = dict(zip(self._target.selected, found, strict=True))
            self._take_one(self._target.merge("rowid = ?"), (place,), lambda row=row: row)
        return self.rows

    def _take_one(self, statement: str, parameters: Any, row: Any) -> None:
        try:
            self.rows += self._connection.execute(statement, parameters).rowcount
        except sqlite3.IntegrityError as error:
            bad = bad_row({name: row().get(name) for name in self._target.selected}, str(error))
            if self._target.sink.on_error == "stop":
                raise undeliverable(bad, self._target.sink.table, self._batch) from error
            self.dead.append(bad)
