"""DuckDB behind the SQL delivery: a file that is open for one transaction, and one batch written inside it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from atonce.connectors.sql.arrow_task import ArrowTask
from atonce.connectors.sql.bad_rows import bad_row, undeliverable
from atonce.connectors.sql.beside.letters import Again, Keeping, LetterTable, all_aside, is_older, kept_as
from atonce.connectors.sql.duckdb.file import DuckFile, first_line
from atonce.connectors.sql.duckdb.merge import (
    ROWS,
    create_deleted,
    create_seen,
    drop_seen_before,
    insert,
    merge,
    quoted,
    remember_seen,
    stage,
)
from atonce.connectors.sql.duckdb.spool import Spool
from atonce.connectors.sql.duckdb.target import DuckTarget, resolve, table_columns
from atonce.connectors.sql.job import require_input_order, run_into
from atonce.connectors.sql.ledger import SqlLedger
from atonce.connectors.sql.memory import MemoryClock, give_to_the_table
from atonce.connectors.sql.rows_in import Intake
from atonce.connectors.sql.task import Deletes
from atonce.delivery.contract import Batch, Identity
from atonce.errors import AtOnceError, AttemptAborted, InvariantError, RefusedError, UndeliverableRow
from atonce.spark.arrow_job import ArrowJobs
from atonce.spark.channel import Place

if TYPE_CHECKING:
    from atonce.connectors.sql.duckdb.sink import DuckDB


_LETTER_TYPES = {"text": "VARCHAR", "int": "BIGINT", "bytes": "BLOB", "time": "TIMESTAMP"}


def letter_table(sink: DuckDB) -> LetterTable:
    return LetterTable(name=quoted(sink.letters_beside(sink.table)), types=_LETTER_TYPES)


class DuckStore:
    """`Store` for DuckDB. Its connections are files that are closed between transactions."""

    def __init__(self, sink: DuckDB, identity: Identity, spark: Any) -> None:
        self._sink = sink
        self._pipeline = identity.pipeline
        self._source = identity.source
        self._spark = spark
        self._secret = Place.of(spark).new_secret()
        self._jobs = ArrowJobs()
        self._numbers = MemoryClock(sink.keep_s)
        self._deletions = MemoryClock(sink.deletes_keep_s)
        self._known: tuple[Any, DuckTarget] | None = None
        """The schema of the last batch, and where it went."""

    @property
    def output(self) -> str:
        return self._sink.table

    def connect(self) -> DuckFile:
        return DuckFile(self._sink.path)

    def nowhere(self) -> DuckFile | None:
        return None if self._sink.exists() else DuckFile(":memory:")

    def begin(self, connection: DuckFile) -> None:
        """The file is opened by the first statement: a batch computes its rows before it."""

    def commit(self, connection: DuckFile) -> None:
        connection.commit()

    def rollback(self, connection: DuckFile) -> None:
        connection.close()

    def close(self, connection: DuckFile) -> None:
        connection.close()

    def prepare(self, connection: DuckFile, ledger: SqlLedger) -> None:
        ledger.create(connection)

    def accepts(self, connection: DuckFile, schema: Any) -> None:
        resolve(connection, self._sink, schema)

    def write(self, connection: DuckFile, batch: Batch) -> int:
        if connection.is_open:
            raise InvariantError(f"pipeline {self._pipeline}: {self._sink.path} is open before the batch has its rows")
        target = self._expected(connection, batch.df.schema)
        require_input_order(batch, self._sink, self._sink.table)
        with Spool() as spool:
            intake = Intake.for_session(spool.take, self._spark, self._secret)
            run_into(intake, self._jobs, batch, target.selected, self.task(target), self._sink.table)
            # Computing took a while: what the rows were made for is asked again, in the transaction that writes them.
            if resolve(connection, self._sink, batch.df.schema) != target:
                self._known = None
                raise AttemptAborted(
                    f"table {self._sink.table} in {self._sink.path} was changed while a batch was computed for it. "
                    "Nothing of the batch is visible, it runs again."
                )
            try:
                rows, refused = self.finish(connection, target, spool.reader()), list[dict[str, Any]]()
            except duckdb.IntegrityError as error:
                rows, refused = self._around(connection, target, batch, spool, error)
            self._put_aside(connection, batch, [*intake.found.dead, *refused])
            return rows

    def task(self, target: DuckTarget) -> ArrowTask:
        """What the tasks do for this table."""
        return ArrowTask(
            secret=self._secret,
            names=tuple(target.selected),
            required=target.required,
            dead_letter=self._sink.puts_aside,
            deletes=Deletes.of(self._sink),
        )

    def finish(self, connection: DuckFile, target: DuckTarget, rows: Any) -> int:
        """The rows of a batch (an Arrow table or reader, None when there are none), into the table."""
        if rows is None:
            return 0
        connection.opened().register(ROWS, rows)
        if not target.staged:
            count = connection.execute(insert(target, ROWS)).rowcount
        else:
            for statement in stage():
                connection.execute(statement)
            count = self._merge(connection, target)
        connection.opened().unregister(ROWS)
        return count

    def _around(
        self, connection: DuckFile, target: DuckTarget, batch: Batch, spool: Spool, error: Exception
    ) -> tuple[int, list[dict[str, Any]]]:
        """All rows but those that DuckDB refuses, which are given back; or the first of them stops the pipeline.

        An error ends DuckDB's transaction: nothing but this batch's rows is in it yet, so it simply begins again.
        """
        rows = spool.reader().read_all()  # type: ignore[union-attr]
        dead = []
        while True:
            place, said = self._culprit(connection, target, batch, rows, error)
            found = bad_row(rows.select(target.selected).slice(place, 1).to_pylist()[0], said)
            if not self._sink.puts_aside:
                raise undeliverable(found, self._sink.table, batch) from error
            dead.append(found)
            rows = pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])
            connection.close()
            try:
                resolve(connection, self._sink, batch.df.schema)
                return self.finish(connection, target, rows), dead
            except duckdb.IntegrityError as again:
                error = again

    def mark(self, connection: DuckFile, again: Again) -> None:
        again.mark(letter_table(self._sink), lambda sql, values: connection.execute(sql, values).rowcount)

    def _put_aside(self, connection: DuckFile, batch: Batch, dead: list[dict[str, Any]]) -> None:
        found = all_aside(batch, self._sink, self._sink.table, dead)
        keeping = Keeping(
            table=letter_table(self._sink),
            names=(self._pipeline, self._sink.table),
            source=self._source,
            run=connection.execute,
            many=lambda sql, rows: connection.opened().executemany(sql, rows),
        )
        if not found and not batch.again_from:
            return
        name = self._sink.letters_beside(self._sink.table)
        there = list(table_columns(connection, name))
        older = is_older(there)
        if there and not older:
            keeping.take_back(batch)
        if not found:
            return
        if older:
            connection.execute(f"ALTER TABLE main.{quoted(name)} RENAME TO {quoted(kept_as(name))}")
        connection.execute(keeping.table.create())
        keeping.keep(batch, found)

    def _culprit(
        self, connection: DuckFile, target: DuckTarget, batch: Batch, rows: Any, error: Exception
    ) -> tuple[int, str]:
        """The row at which DuckDB refuses: the first rows go in, and with it they do not. All of it is taken back."""
        fine, refused = 0, rows.num_rows
        while refused - fine > 1:
            middle = (fine + refused) // 2
            connection.close()  # an error ends the transaction
            try:
                resolve(connection, self._sink, batch.df.schema)
                self.finish(connection, target, rows.slice(0, middle))
                fine = middle
            except duckdb.IntegrityError as again:
                refused, error = middle, again
        return refused - 1, first_line(error)

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, AtOnceError) or not isinstance(error, duckdb.Error):
            return error
        said = first_line(error)
        if isinstance(error, duckdb.IntegrityError | duckdb.DataError):
            return UndeliverableRow(f"DuckDB refused a row for {self._sink.table}: {said}")
        if isinstance(error, duckdb.IOException | duckdb.TransactionException | duckdb.OutOfMemoryException):
            return AttemptAborted(f"DuckDB file {self._sink.path}: {said}. Nothing of this attempt is visible.")
        return RefusedError(f"DuckDB file {self._sink.path} refused: {said}")

    def _expected(self, connection: DuckFile, schema: Any) -> DuckTarget:
        """Where the rows will go, as far as can be said before they are there; the file is closed again."""
        if self._known is None or self._known[0] != schema:
            try:
                self._known = (schema, resolve(connection, self._sink, schema))
            finally:
                connection.close()
        return self._known[1]

    def _merge(self, connection: DuckFile, target: DuckTarget) -> int:
        if self._sink.dedupe is not None:
            connection.execute(create_seen(target))
            if "pipeline" in table_columns(connection, target.seen.strip('"')):
                give_to_the_table(connection.execute, f"main.{target.seen}", create_seen(target))
            seen_at = self._aged(connection, self._numbers, f"main.{target.seen}", "seen_at")
            for statement in drop_seen_before(target):
                connection.execute(statement)
            connection.execute(remember_seen(target), {"seen_at": seen_at})
        deletion = {}
        if self._sink.remembers_deletes:
            connection.execute(create_deleted(target))
            memory = f"main.{quoted(target.memory)}"
            deletion = {"deleted_at": self._aged(connection, self._deletions, memory, "deleted_at")}
        changed = 0
        for statement, counts in merge(target):
            found = connection.execute(statement, deletion if "$deleted_at" in statement else {})
            changed += found.rowcount if counts else 0
        return changed

    def _aged(self, connection: DuckFile, clock: MemoryClock, table: str, column: str) -> float:
        """A memory without what is too old. Returns its time."""

        def found() -> tuple[float | None, float]:
            newest = connection.execute(f"SELECT max({column}) FROM {table}").fetchone()
            return newest[0], time.time()

        def move_up(by_s: float) -> None:
            connection.execute(f"UPDATE {table} SET {column} = {column} + $by", {"by": by_s})

        now = clock.read(found, move_up)
        oldest = clock.oldest(now)
        if oldest is not None:
            connection.execute(f"DELETE FROM {table} WHERE {column} < $oldest", {"oldest": oldest})
        return now
