"""Where a batch goes in SQLite: columns against the table's, Arrow values as SQLite keeps them."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from atonce.connectors.sql.bad_rows import NOT_STORED, POSITION
from atonce.connectors.sql.beside.evolve import Evolution
from atonce.connectors.sql.columns import memory_fits, named_columns_are_there, nulls_fit_a_deletion, stored_columns_fit
from atonce.connectors.sql.sqlite.merge import STAGING, listed, quoted
from atonce.connectors.sql.task import ROW_COLUMN, TASK_COLUMN
from atonce.delivery.letters import ORIGIN
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.connectors.sql.sqlite.sink import SQLite

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteTarget:
    """One table, and the columns of one DataFrame schema that go into it."""

    sink: SQLite
    types: dict[str, str]
    """Column → SQLite's type, of all columns that are selected."""
    written: tuple[str, ...]
    decimals: frozenset[str] = frozenset()
    """Columns whose text is ordered by its value."""
    collations: dict[str, str] = field(default_factory=dict)
    """Key column → the collation by which the table takes keys for alike."""

    @property
    def table(self) -> str:
        return quoted(self.sink.table)

    @property
    def selected(self) -> list[str]:
        """The written columns first; then those that only order rows, or name them."""
        return [*self.written, *(name for name in self.types if name not in self.written)]

    @property
    def required(self) -> frozenset[str]:
        """A key, an order or a message number must be there: null would never be recognised again."""
        return frozenset(self.sink.lasting)

    @property
    def staged(self) -> bool:
        return self.sink.mode == "upsert" or self.sink.dedupe is not None

    @property
    def ties(self) -> tuple[str, ...]:
        """What decides between rows of equal order: their place in the input, as far as the table holds it."""
        if self.sink.mode != "upsert" or not self.sink.orders:
            return ()
        taken = {*self.sink.keys, *self.sink.orders, self.sink.flag}
        return tuple(name for name in POSITION if name in self.written and name not in taken)

    @property
    def places(self) -> tuple[str, ...]:
        """What says how new a row is."""
        return (*self.sink.orders, *self.ties)

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are neither key nor order."""
        # Keys that are alike and not the same ('a' and 'A' under NOCASE) are compared as other columns are.
        same = {key for key in self.sink.keys if self.collations.get(key, "BINARY") == "BINARY"}
        taken = {*same, *self.places, self.sink.flag}
        return tuple(name for name in self.written if name not in taken)

    @property
    def remembered(self) -> tuple[str, ...]:
        """What is left of a deleted row."""
        return tuple(dict.fromkeys((*self.sink.keys, *self.places)))

    @property
    def seen(self) -> str:
        return quoted(f"atonce_seen_{self.sink.table}")

    @property
    def deleted(self) -> str:
        return quoted(f"atonce_deleted_{self.sink.table}")

    def insert(self) -> str:
        """One row of values, straight into the table or into the staging table."""
        columns = [*self.selected, TASK_COLUMN, ROW_COLUMN] if self.staged else list(self.written)
        into = STAGING if self.staged else self.table
        return f"INSERT INTO {into} ({listed(columns)}) VALUES ({', '.join('?' * len(columns))})"

    def create_staging(self) -> str:
        columns = ", ".join(
            f"{quoted(name)} {self.types[name]} COLLATE {self.collations.get(name, 'BINARY')}" for name in self.selected
        )
        return f"CREATE TEMP TABLE atonce_stage ({columns}, {TASK_COLUMN} INTEGER, {ROW_COLUMN} INTEGER)"


def table_columns(connection: Any, table: str) -> dict[str, str]:
    """Column → declared type; empty when there is no such table."""
    return {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({quoted(table)})")}


def resolve(connection: Any, sink: SQLite, schema: Any) -> SqliteTarget:
    """Match the DataFrame's schema to the table, making the table first when asked. `UsageError` names what is off."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    types = {name: _sqlite_type(name, kind) for name, kind in fields.items()}
    named_columns_are_there(sink, fields)
    existing = table_columns(connection, sink.table)
    if not existing:
        existing = _create(connection, sink, types)
    stored_columns_fit(sink, sink.table, existing)
    loose = (*sink.orders, sink.dedupe, sink.delete, *NOT_STORED)
    extra = [name for name in types if name not in existing and name not in loose]
    if extra and sink.evolve:
        Evolution(connection=connection, table=sink.table, quoted_table=quoted(sink.table)).add(
            existing, {name: types[name] for name in extra}
        )
        existing = table_columns(connection, sink.table)
    elif extra:
        raise UsageError(
            f"the DataFrame has a column {extra[0]}, but table {sink.table} has only {', '.join(existing)}. "
            "Next: leave it out in the transform, add it to the table, or set evolve: true."
        )
    for name in types:
        if name in existing:
            _affinity_must_fit(name, types[name], existing[name])
    target = SqliteTarget(
        sink=sink,
        types=types,
        written=tuple(name for name in types if name in existing),
        decimals=frozenset(name for name, kind in fields.items() if kind.startswith("decimal")),
        collations=_unique_key(connection, sink) if sink.mode == "upsert" else {},
    )
    if sink.soft_delete is not None:
        info = connection.execute(f"PRAGMA table_info({quoted(sink.table)})")
        nulls_fit_a_deletion(sink.table, [row[1] for row in info if row[3] and row[1] in target.others])
    if sink.remembers_deletes:
        memory = target.deleted.strip('"')
        memory_fits(memory, table_columns(connection, memory), target.remembered)
    return target


def _create(connection: Any, sink: SQLite, types: dict[str, str]) -> dict[str, str]:
    if not sink.create:
        raise UsageError(f"table {sink.table} does not exist in {sink.path}. Next: create it, or set create=True.")
    made = {name: kind for name, kind in types.items() if name != sink.delete and name not in ORIGIN}
    parts = [f"{quoted(name)} {kind}{' NOT NULL' if name in sink.keys else ''}" for name, kind in made.items()]
    if sink.keys:
        parts.append(f"PRIMARY KEY ({listed(sink.keys)})")
    connection.execute(f"CREATE TABLE {quoted(sink.table)} ({', '.join(parts)})")
    return made


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


def _unique_key(connection: Any, sink: SQLite) -> dict[str, str]:
    """The collation of each key column. `UsageError` without an index on the key that an upsert can go by."""
    collations = _collations(connection, sink)
    key = listed(sink.keys)
    try:
        # SQLite itself is asked: it looks at partial indexes, expressions and collations as the upsert will.
        connection.execute(
            f"EXPLAIN INSERT INTO {quoted(sink.table)} ({key}) VALUES ({', '.join('?' * len(sink.keys))}) "
            f"ON CONFLICT ({key}) DO NOTHING",
            [None] * len(sink.keys),
        ).fetchall()
    except sqlite3.OperationalError:
        collations = None
    if collations is None:
        names = ", ".join(sink.keys)
        raise UsageError(
            f"upsert by ({names}) needs a unique index on exactly these columns of {sink.table}, and there is none. "
            f"Next: CREATE UNIQUE INDEX {sink.table}_key ON {sink.table} ({names})."
        )
    return collations


def _collations(connection: Any, sink: SQLite) -> dict[str, str] | None:
    wanted = sorted(sink.keys)
    for index in connection.execute(f"PRAGMA index_list({quoted(sink.table)})").fetchall():
        parts = connection.execute(f"PRAGMA index_xinfo({quoted(index[1])})").fetchall()
        columns = {row[2]: row[4] for row in parts if row[5] and row[1] >= 0}
        if index[2] and not index[4] and sorted(columns) == wanted and len(columns) == sum(bool(r[5]) for r in parts):
            return columns
    info = connection.execute(f"PRAGMA table_info({quoted(sink.table)})")
    # A table's only INTEGER PRIMARY KEY is its row id and has no index.
    return dict.fromkeys(wanted, "BINARY") if sorted(row[1] for row in info if row[5]) == wanted else None


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
