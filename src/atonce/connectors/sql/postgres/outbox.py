"""A PostgreSQL table as a source, planned without blocking its writers.

An INSERT locks the table (ROW EXCLUSIVE, which other writers share) before it takes its id, and keeps the lock until
its transaction ends. So: read the last visible id, then list the transactions that hold that lock, then wait until
exactly these have ended. Whoever comes later takes a higher id; nothing below can still appear.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from atonce.connectors.sql.database import Condition, ReadColumn, TableRef, quoted, wanted_columns
from atonce.connectors.sql.postgres import outbox_ids as ids
from atonce.errors import UnreachableError, UsageError

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

    def limited_end(self, start: int, end: int, rows: int) -> int:
        with self._connect() as connection:
            found = connection.execute(
                f"SELECT {self._id} FROM {self._table} WHERE {self._id} >= %s AND {self._id} < %s "
                f"ORDER BY {self._id} OFFSET %s LIMIT 1".encode(),
                (start, end, rows),
            ).fetchone()
        return end if found is None else int(found[0])

    def read(self, start: int, end: int) -> Iterator[Any]:
        import adbc_driver_postgresql.dbapi as adbc

        select = ", ".join(f"{column.expression} AS {quoted(column.name)}" for column in self.columns())
        sql = (
            f"SELECT {select} FROM {self._table} WHERE {self._id} >= {int(start)} AND {self._id} < {int(end)} "
            f"ORDER BY {self._id}"
        )
        with adbc.connect(self._ref.url) as connection, connection.cursor() as cursor:
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
            raise UnreachableError(f"PostgreSQL at {self.where} does not let us in: {str(error).strip()}") from None


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
