"""Where a batch goes in SQLite: columns against the table's, Arrow values as SQLite keeps them, the SQL that merges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from atonce.errors import UsageError
from atonce.sinks.sql_bad_rows import POSITION
from atonce.sinks.sql_task import ROW_COLUMN, TASK_COLUMN

if TYPE_CHECKING:
    from atonce.sinks.sqlite import SQLite

STAGING = "temp.atonce_stage"

_TYPES = {
    "boolean": "INTEGER",
    "tinyint": "INTEGER",
    "smallint": "INTEGER",
    "int": "INTEGER",
    "bigint": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    # SQLite has no decimals: as NUMERIC it would round them to a double, as text they stay exact.
    "decimal": "TEXT",
    "string": "TEXT",
    "binary": "BLOB",
    "date": "TEXT",
    "timestamp": "TEXT",
    "timestamp_ntz": "TEXT",
}
_AFFINITY = {"INTEGER": ("INT",), "REAL": ("REAL", "FLOA", "DOUB"), "TEXT": ("CHAR", "CLOB", "TEXT"), "BLOB": ("BLOB",)}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteTarget:
    """One table, and the columns of one DataFrame schema that go into it."""

    sink: SQLite
    types: dict[str, str]
    """Column → SQLite's type, of all columns that are selected."""
    written: tuple[str, ...]

    @property
    def table(self) -> str:
        return quoted(self.sink.table)

    @property
    def selected(self) -> list[str]:
        """The written columns first; then those that only order rows, or name them."""
        return [*self.written, *(name for name in self.types if name not in self.written)]

    @property
    def required(self) -> frozenset[str]:
        """A key or a message number must be there: null would never be recognised again."""
        return frozenset({*self.sink.keys, *([self.sink.dedupe] if self.sink.dedupe else [])})

    @property
    def staged(self) -> bool:
        return self.sink.mode == "upsert" or self.sink.dedupe is not None

    def insert(self) -> str:
        """One row of values, straight into the table or into the staging table."""
        columns = [*self.selected, TASK_COLUMN, ROW_COLUMN] if self.staged else list(self.written)
        into = STAGING if self.staged else self.table
        return f"INSERT INTO {into} ({_list(columns)}) VALUES ({', '.join('?' * len(columns))})"

    def create_staging(self) -> str:
        columns = ", ".join(f"{quoted(name)} {self.types[name]}" for name in self.selected)
        return f"CREATE TEMP TABLE atonce_stage ({columns}, {TASK_COLUMN} INTEGER, {ROW_COLUMN} INTEGER)"

    @property
    def seen(self) -> str:
        return quoted(f"atonce_seen_{self.sink.table}")

    def create_seen(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.seen} (pipeline TEXT NOT NULL, "
            f"number {self.types[self.sink.dedupe or '']} NOT NULL, "
            "seen_at REAL NOT NULL, PRIMARY KEY (pipeline, number)) WITHOUT ROWID"
        )

    def drop_seen_before(self) -> str:
        """From the staging table: all but the first row of each number, and numbers processed before."""
        number = quoted(self.sink.dedupe or "")
        return (
            f"DELETE FROM {STAGING} WHERE rowid NOT IN (SELECT rowid FROM (SELECT rowid, row_number() OVER "
            f"(PARTITION BY {number} ORDER BY {self._order('ASC')}) AS place FROM {STAGING}) WHERE place = 1) "
            f"OR EXISTS (SELECT 1 FROM {self.seen} WHERE pipeline = :pipeline AND number = atonce_stage.{number})"
        )

    def remember(self) -> str:
        number = quoted(self.sink.dedupe or "")
        return f"INSERT INTO {self.seen} SELECT :pipeline, {number}, :now FROM {STAGING}"

    def merge(self, where: str = "true") -> str:
        """From the staging table into the table; in upsert the last row of a key wins."""
        columns = _list(self.written)
        into = f"INSERT INTO {self.table} ({columns})"
        if self.sink.mode == "append":
            return f"{into} SELECT {columns} FROM {STAGING} WHERE {where}"
        key = _list(self.sink.keys)
        others = [name for name in self.written if name not in self.sink.keys]
        change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        return (
            f"{into} SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY "
            f"{self._order('DESC')}) AS place FROM {STAGING} WHERE {where}) WHERE place = 1 "
            f"ON CONFLICT ({key}) DO {'UPDATE SET ' + change if change else 'NOTHING'}"
        )

    def in_order(self) -> str:
        """Row ids of the staging table, in the order that decides which row of a key wins."""
        return f"SELECT rowid FROM {STAGING} ORDER BY {self._order('ASC')}"

    def _order(self, direction: str) -> str:
        wanted = [f"{quoted(name)} {direction}" for name in self.sink.orders]
        return ", ".join([*wanted, f"{TASK_COLUMN} {direction}", f"{ROW_COLUMN} {direction}"])


def table_columns(connection: Any, table: str) -> dict[str, str]:
    """Column → declared type; empty when there is no such table."""
    return {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({quoted(table)})")}


def resolve(connection: Any, sink: SQLite, schema: Any) -> SqliteTarget:
    """Match the DataFrame's schema to the table, making the table first when asked. `UsageError` names what is off."""
    types = {field.name: _sqlite_type(field.name, field.dataType.simpleString()) for field in schema.fields}
    for name in (*sink.keys, *sink.orders, *([sink.dedupe] if sink.dedupe else [])):
        if name not in types:
            raise UsageError(f"column {name} is named as key, order or dedupe, but the DataFrame has {list(types)}")
    existing = table_columns(connection, sink.table)
    if not existing:
        if not sink.create:
            raise UsageError(f"table {sink.table} does not exist in {sink.path}. Next: create it, or set create=True.")
        parts = [f"{quoted(name)} {kind}{' NOT NULL' if name in sink.keys else ''}" for name, kind in types.items()]
        if sink.keys:
            parts.append(f"PRIMARY KEY ({_list(sink.keys)})")
        connection.execute(f"CREATE TABLE {quoted(sink.table)} ({', '.join(parts)})")
        existing = dict(types)
    extra = [n for n in types if n not in existing and n not in (*sink.orders, sink.dedupe, *POSITION)]
    if extra:
        raise UsageError(
            f"the DataFrame has a column {extra[0]}, but table {sink.table} has only {', '.join(existing)}. "
            "Next: leave it out in the transform, or add it to the table."
        )
    for name in types:
        if name in existing:
            _affinity_must_fit(name, types[name], existing[name])
    if sink.mode == "upsert":
        _key_is_unique(connection, sink)
    return SqliteTarget(sink=sink, types=types, written=tuple(name for name in types if name in existing))


def _sqlite_type(name: str, spark_type: str) -> str:
    base = re.sub(r"\(.*", "", spark_type).split(" ")[0]
    base = "string" if base in ("varchar", "char") else base
    if base not in _TYPES:
        raise UsageError(
            f"column {name}: Spark's type {spark_type} has no counterpart in a table row. "
            f"Allowed: {', '.join(_TYPES)}. Next: turn it into a string with to_json({name}), or leave it out."
        )
    return _TYPES[base]


def _affinity_must_fit(name: str, wanted: str, declared: str) -> None:
    """SQLite turns values into what a column's declared type prefers: text that looks like a number would change."""
    said = declared.upper()
    if not said or wanted == "BLOB" or any(word in said for word in _AFFINITY[wanted]):
        return
    if wanted == "INTEGER" and "BOOL" in said:
        return
    if wanted == "TEXT" and any(word in said for word in ("DATE", "TIME", "JSON", "UUID")):
        raise UsageError(
            f"column {name}: SQLite gives the declared type {declared} the affinity NUMERIC and would change text that "
            "looks like a number. Next: declare it TEXT."
        )
    raise UsageError(
        f"column {name}: rows bring {wanted}, and the table declares {declared}. Next: cast it, or declare it."
    )


def _key_is_unique(connection: Any, sink: SQLite) -> None:
    wanted = sorted(sink.keys)
    info = list(connection.execute(f"PRAGMA table_info({quoted(sink.table)})"))
    if sorted(row[1] for row in info if row[5]) == wanted:
        return
    for index in connection.execute(f"PRAGMA index_list({quoted(sink.table)})").fetchall():
        columns = [row[2] for row in connection.execute(f"PRAGMA index_info({quoted(index[1])})")]
        if index[2] and not index[4] and sorted(str(name) for name in columns) == wanted:
            return
    key = ", ".join(sink.keys)
    raise UsageError(
        f"upsert by ({key}) needs a unique index on exactly these columns of {sink.table}, and there is none. "
        f"Next: CREATE UNIQUE INDEX {sink.table}_key ON {sink.table} ({key})."
    )


def values(array: Any) -> list[Any]:
    """An Arrow column as the values SQLite binds, converted as a column and not one by one where Arrow can."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in array.to_pylist()]
    elif pa.types.is_timestamp(kind):
        text = pc.strftime(array.cast(pa.int64()).cast(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
        array = pc.binary_join_element_wise(text, "+00:00", "") if kind.tz else text
    elif pa.types.is_date(kind):
        array = array.cast(pa.string())
    found: list[Any] = array.to_pylist()
    return found


def _list(columns: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in columns)
