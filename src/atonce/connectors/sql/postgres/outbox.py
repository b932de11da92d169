"""A PostgreSQL table as a source, planned without blocking its writers.

An INSERT locks the table (ROW EXCLUSIVE, which other writers share) before it takes its id, and keeps the lock until
its transaction ends. So: read the last visible id, then list the transactions that hold that lock, then wait until
exactly these have ended. Whoever comes later takes a higher id; nothing below can still appear.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from atonce.connectors.sql.database import (
    DIGEST_BYTES,
    Check,
    Condition,
    ReadColumn,
    TableRef,
    digested,
    quoted,
    wanted_columns,
)
from atonce.connectors.sql.postgres import outbox_ids as ids
from atonce.errors import UnreachableError, UsageError
from atonce.extras import Later

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Later("psycopg")

_SPARK_TYPES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "varchar": "string",
    "bpchar": "string",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_COLUMNS = """
SELECT a.attname, b.typname, format_type(b.oid, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_WRITERS = f"""
SELECT DISTINCT virtualtransaction, pid IS NULL AS prepared FROM pg_locks
WHERE locktype = 'relation' AND relation IN ({ids.TREE}) AND granted AND mode IN
    ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()"""
_SAME_TEXT = (
    "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres'; "
    "SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; SET LOCAL lc_monetary = 'C'; "
    "SET LOCAL xmloption = 'content'"
)
"""A value reads the same whoever asks, and whatever a role's settings have become."""
_DIGEST = (
    "left(encode(sha256(convert_to({0}::text, getdatabaseencoding()::text)), 'hex'), " + str(2 * DIGEST_BYTES) + ")"
)
_FIRST_TRANSACTION = 3
"""Lower numbers stand for rows that are older than any transaction."""
_POLL_S = 0.02
_BATCH_BYTES = 16 << 20


class PostgresTable:
    def __init__(self, ref: TableRef) -> None:
        self._ref = ref
        self._table = ".".join(quoted(part) for part in ref.table.split(".", 1))
        self._id = quoted(ref.column)
        self._open_end: _OpenEnd | None = None

    @property
    def where(self) -> str:
        parts = psycopg.conninfo.conninfo_to_dict(self._ref.url)
        return f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"

    def check(self) -> None:
        with self._connect() as connection:
            found = {column.name: column for column in self._columns(connection)}
            wanted_columns(self._ref, found)
            if found[self._ref.column].spark not in ("smallint", "int", "bigint"):
                raise UsageError(
                    f"column {self._ref.column} of {self._ref.table} is {found[self._ref.column].spark}; an integer is "
                    "needed, so that there is a next position"
                )
            if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
                raise UsageError(
                    f"{self.where} is a replica: it does not know which transactions are still open on the primary, so "
                    "rows could be passed over. Next: name the primary."
                )
            ids.check_tree(connection, self._ref, self._table)
            ids.check_sequence(connection, self._ref, self._table)

    def cautions(self) -> list[str]:
        with self._connect() as connection:
            return ids.cautions(connection, self._ref, self._table)

    def condition(self) -> Condition:
        with self._connect() as connection:
            return ids.condition(connection, self._ref, self._table)

    @contextlib.contextmanager
    def view(self) -> Iterator[PostgresView]:
        with self._connect() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(_SAME_TEXT)
            # Before the snapshot: a table that is dropped or truncated after it would look empty.
            missing = _locked(connection, self._table)
            yield PostgresView(connection, self._ref, self._table, missing)

    def columns(self) -> list[ReadColumn]:
        with self._connect() as connection:
            return wanted_columns(self._ref, {column.name: column for column in self._columns(connection)})

    def bounds(self) -> tuple[int, int]:
        with self._connect() as connection:
            row = connection.execute(f"SELECT min({self._id}), max({self._id}) FROM {self._table}".encode()).fetchone()
        return (0, 0) if row is None or row[0] is None else (row[0], row[1] + 1)

    def safe_end(self, start: int, wait_s: float) -> int:
        deadline = time.monotonic() + wait_s
        with self._connect() as connection:
            if self._open_end is None:
                self._open_end = self._candidate(connection, start)
            while self._still_open(connection, self._open_end):
                # Kept for the next call: waiting anew for whoever writes by then might never end.
                if time.monotonic() >= deadline:
                    return start
                time.sleep(_POLL_S)
        end, self._open_end = self._open_end.end, None
        return max(start, end)

    def read(self, start: int, end: int, check: Check | None = None) -> Iterator[Any]:
        import adbc_driver_postgresql.dbapi as adbc

        select = ", ".join(f"{column.expression} AS {quoted(column.name)}" for column in self.columns())
        sql = (
            f"SELECT {select} FROM {self._table} WHERE {self._id} >= {int(start)} AND {self._id} < {int(end)} "
            f"ORDER BY {self._id}"
        )
        with adbc.connect(self._ref.url) as connection, connection.cursor() as cursor:
            with self.view() as view:
                if check is not None:
                    check(view)
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{view.snapshot()}'")
                cursor.execute(f"LOCK TABLE {self._table} IN ACCESS SHARE MODE")
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()

    def _candidate(self, connection: psycopg.Connection[Any], start: int) -> _OpenEnd:
        server = _server(connection)
        sql = f"SELECT max({self._id}) FROM {self._table} WHERE {self._id} >= %s".encode()
        row = connection.execute(sql, (start,)).fetchone()
        if row is None or row[0] is None:
            return _OpenEnd(end=start, writers=set(), server=server)
        # In this order: a writer that holds a lower id than the one just read already held its lock then.
        return _OpenEnd(end=row[0] + 1, writers=set(self._writers(connection)), server=server)

    def _still_open(self, connection: psycopg.Connection[Any], candidate: _OpenEnd) -> bool:
        present, server = self._writers(connection), _server(connection)
        if server != candidate.server:
            # The server was started again. Of the transactions before, those that were prepared are still there, and
            # under other numbers; the rest is rolled back.
            candidate.server = server
            candidate.writers = {number for number, prepared in present.items() if prepared}
        candidate.writers &= set(present)
        return bool(candidate.writers)

    def _writers(self, connection: psycopg.Connection[Any]) -> dict[str, bool]:
        """Transactions that may have written here and are not over: their virtual number → whether it is prepared."""
        return dict(connection.execute(_WRITERS.encode(), {"table": self._table}).fetchall())

    def _columns(self, connection: psycopg.Connection[Any]) -> list[ReadColumn]:
        return [_read_column(*row) for row in connection.execute(_COLUMNS, (self._table,))]

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(self._ref.url, autocommit=True, connect_timeout=10, application_name="atonce")
        except psycopg.OperationalError as error:
            raise UnreachableError(f"PostgreSQL at {self.where} refused the connection: {str(error).strip()}") from None


class PostgresView:
    """One snapshot, with the table locked against being dropped or truncated; its writers are not held up."""

    def __init__(
        self, connection: psycopg.Connection[Any], ref: TableRef, table: str, missing: Exception | None
    ) -> None:
        self._connection = connection
        self._ref = ref
        self._table = table
        self._missing = missing
        self._id = quoted(ref.column)

    def condition(self) -> Condition:
        if self._missing is not None:
            return Condition(identity="", next_id=None)
        return ids.condition(self._connection, self._ref, self._table)

    def last_below(self, position: int) -> int | None:
        found = self._one(f"SELECT max({self._id}) FROM {self._table} WHERE {self._id} < %s", position)
        return None if found is None or found[0] is None else int(found[0])

    def row(self, at: int, columns: Sequence[str] | None) -> dict[str, str] | None:
        present = [name for name, *_ in self._connection.execute(_COLUMNS, (self._table,))]
        names = digested(self._ref, present, columns)
        select = ", ".join(["1", *(_DIGEST.format(quoted(name).replace("%", "%%")) for name in names)])
        found = self._one(f"SELECT {select} FROM {self._table} WHERE {self._id} = %s", at)
        return None if found is None else dict(zip(names, (text or "null" for text in found[1:]), strict=True))

    def moment(self) -> str:
        """The first transaction number that this snapshot does not see."""
        return f"transaction {self._one('SELECT pg_snapshot_xmax(pg_current_snapshot())::text')[0]}"

    def is_older(self, at: int, when: str) -> bool:
        """By the number of the transaction that wrote the row, of which PostgreSQL keeps the lower 32 bits."""
        found = self._one(f"SELECT xmin::text::bigint FROM {self._table} WHERE {self._id} = %s", at)
        if found is None:
            return False
        since = (int(found[0]) - int(when.removeprefix("transaction "))) % (1 << 32)
        return int(found[0]) < _FIRST_TRANSACTION or since >= 1 << 31

    def limited_end(self, start: int, end: int, rows: int) -> int:
        found = self._one(
            f"SELECT {self._id} FROM {self._table} WHERE {self._id} >= %s AND {self._id} < %s "
            f"ORDER BY {self._id} OFFSET %s LIMIT 1",
            start,
            end,
            rows,
        )
        return end if found is None else int(found[0])

    def snapshot(self) -> str:
        """Its name, for another connection."""
        return str(self._one("SELECT pg_export_snapshot()")[0])

    def _one(self, sql: str, *parameters: Any) -> Any:
        if self._missing is not None:
            raise self._missing
        return self._connection.execute(sql.encode(), parameters).fetchone()


def _locked(connection: psycopg.Connection[Any], table: str) -> Exception | None:
    """The table stays until the transaction ends; why it is not there, if it is not."""
    try:
        connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE".encode())
    except psycopg.errors.UndefinedTable as error:
        return error
    return None


@dataclass(slots=True, kw_only=True)
class _OpenEnd:
    """An end that may be used once these transactions are over."""

    end: int
    writers: set[str]
    server: Any
    """When the server was started: the numbers of its transactions begin again with it."""


def _server(connection: psycopg.Connection[Any]) -> Any:
    row = connection.execute("SELECT pg_postmaster_start_time()").fetchone()
    return row[0] if row else None


def _read_column(name: str, typname: str, sql: str) -> ReadColumn:
    numeric = re.fullmatch(r"numeric\((\d+),(\d+)\)", sql)
    if numeric and int(numeric[1]) <= 38:
        return ReadColumn(name=name, spark=f"decimal({numeric[1]},{numeric[2]})", expression=f"{quoted(name)}::text")
    if typname in _SPARK_TYPES:
        expression = f"{quoted(name)}::text" if typname in ("varchar", "bpchar") else quoted(name)
        return ReadColumn(name=name, spark=_SPARK_TYPES[typname], expression=expression)
    # Everything else (json, uuid, unbounded numeric, arrays, enumerations) as PostgreSQL writes it.
    return ReadColumn(name=name, spark="string", expression=f"{quoted(name)}::text")


def to_schema(batch: Any, schema: Any) -> Any:
    """What the database gave, in the types that Spark was promised."""
    return pa.RecordBatch.from_arrays(
        [c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)], schema=schema
    )
