"""Where a batch goes: the DataFrame's columns against the table's, the table made when asked, the SQL that merges."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from atonce.errors import UsageError
from atonce.sinks.postgres_task import NUMBERING
from atonce.sinks.postgres_types import Column, TableColumn, for_existing_column, for_new_table, inspect
from atonce.sinks.sql_bad_rows import POSITION
from atonce.sinks.sql_task import ROW_COLUMN, TASK_COLUMN

if TYPE_CHECKING:
    from atonce.sinks.postgres import Postgres


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def qualified(name: str) -> str:
    """`schema.table` or `table`, each part quoted."""
    return ".".join(quoted(part) for part in name.split(".", 1))


def beside(table: str, name: str) -> str:
    """A table of ours in the same schema as `table`."""
    schema, dot, _ = table.rpartition(".")
    return f"{quoted(schema)}.{quoted(name)}" if dot else quoted(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One table, and the columns of one DataFrame schema that go into it."""

    table: str
    columns: tuple[Column, ...]
    """Written into the table."""
    carried: tuple[Column, ...]
    """Not in the table: they order rows, or name them when something is wrong."""
    sink: Postgres

    @property
    def staged(self) -> bool:
        """Whether rows go through a staging table: only what cannot be said by COPY alone."""
        return self.sink.mode == "upsert" or self.sink.dedupe is not None

    @property
    def selected(self) -> list[str]:
        return [column.name for column in self.columns + self.carried]

    @property
    def names(self) -> str:
        return ", ".join(quoted(column.name) for column in self.columns)

    def staging_columns(self) -> tuple[Column, ...]:
        """Without constraints: types whose values only the server can judge arrive as text and are cast later."""
        return tuple(
            replace(column, wire="text", sql="text") if column.wire in ("json", "jsonb") or column.enum else column
            for column in self.columns + self.carried
        )

    @property
    def staging(self) -> str:
        digest = hashlib.sha256(repr((self.table, self.staging_columns())).encode()).hexdigest()[:16]
        return f"pg_temp.{quoted('atonce_stage_' + digest)}"

    def create_staging(self) -> str:
        """A temporary table is not logged, belongs to this connection alone, and is emptied by every commit."""
        columns = ", ".join(f"{quoted(c.name)} {_staging_type(c)}" for c in (*self.staging_columns(), *NUMBERING))
        name = self.staging.removeprefix("pg_temp.")
        return f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({columns}) ON COMMIT DELETE ROWS"

    def merge(self, where: str = "TRUE") -> str:
        """From the staging table into the table: numbers seen before are dropped, the last row of a key wins."""
        cast = ", ".join(f"{quoted(c.name)}::{c.sql}" for c in self.columns)
        rows = f"(SELECT * FROM {self.staging} WHERE {where})"
        prefix = ""
        if self.sink.dedupe is not None:
            number = quoted(self.sink.dedupe)
            prefix = (
                f"WITH fresh AS (INSERT INTO {self.seen} (pipeline, number, seen_at) "
                f"SELECT DISTINCT %(pipeline)s, {number}, now() FROM {rows} AS incoming "
                "ON CONFLICT DO NOTHING RETURNING number) "
            )
            rows = (
                f"(SELECT DISTINCT ON ({number}) incoming.* FROM {rows} AS incoming "
                f"JOIN fresh ON fresh.number = incoming.{number} ORDER BY {number}, {self._order('ASC')})"
            )
        if self.sink.mode == "append":
            return f"{prefix}INSERT INTO {self.table} ({self.names}) SELECT {cast} FROM {rows} AS rows"
        key = ", ".join(quoted(name) for name in self.sink.keys)
        others = [c.name for c in self.columns if c.name not in self.sink.keys]
        change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        return (
            f"{prefix}INSERT INTO {self.table} ({self.names}) "
            f"SELECT {cast} FROM (SELECT DISTINCT ON ({key}) * FROM {rows} AS rows "
            f"ORDER BY {key}, {self._order('DESC')}) AS latest "
            f"ON CONFLICT ({key}) DO {'UPDATE SET ' + change if change else 'NOTHING'}"
        )

    def staged_between(self, first: int, size: int) -> str:
        """A condition for `merge`: `size` staged rows from the `first`-th, in the order that decides which wins."""
        number = f"{TASK_COLUMN}, {ROW_COLUMN}"
        return (
            f"({number}) IN (SELECT {number} FROM {self.staging} "
            f"ORDER BY {self._order('ASC')} OFFSET {first} LIMIT {size})"
        )

    @property
    def seen(self) -> str:
        return beside(self.sink.table, f"atonce_seen_{self.sink.table.rpartition('.')[2]}")

    def create_seen(self) -> str:
        column = next(c for c in self.columns + self.carried if c.name == self.sink.dedupe)
        return (
            f"CREATE TABLE IF NOT EXISTS {self.seen} (pipeline text NOT NULL, number {column.sql} NOT NULL, "
            "seen_at timestamptz NOT NULL, PRIMARY KEY (pipeline, number))"
        )

    def _order(self, direction: str) -> str:
        nulls = "LAST" if direction == "DESC" else "FIRST"
        wanted = [f"{quoted(name)} {direction} NULLS {nulls}" for name in self.sink.orders]
        return ", ".join([*wanted, f"{TASK_COLUMN} {direction}", f"{ROW_COLUMN} {direction}"])


def _staging_type(column: Column) -> str:
    return "text" if column.wire == "text" else column.sql


def resolve(connection: Any, sink: Postgres, schema: Any) -> Target:
    """Match the DataFrame's schema to the table, making the table first when asked. `UsageError` names what is off."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    if len(fields) != len(schema.fields):
        raise UsageError(f"the DataFrame has two columns of one name: {[f.name for f in schema.fields]}")
    for name in (*sink.keys, *sink.orders, *([sink.dedupe] if sink.dedupe else [])):
        if name not in fields:
            raise UsageError(f"column {name} is named as key, order or dedupe, but the DataFrame has {list(fields)}")
    table = qualified(sink.table)
    existing = inspect(connection, table)
    if not existing:
        existing = _create(connection, sink, table, fields)
    columns, carried = [], []
    for name, spark_type in fields.items():
        if name in existing:
            columns.append(_strict(for_existing_column(name, spark_type, existing[name]), sink))
        elif name in sink.orders or name == sink.dedupe or name in POSITION:
            carried.append(_strict(for_new_table(name, spark_type, required=False), sink))
        else:
            raise UsageError(
                f"the DataFrame has a column {name}, but table {sink.table} has only {', '.join(existing)}. "
                "Next: leave it out in the transform, or add it to the table."
            )
    _nothing_missing(sink, existing, columns)
    if sink.mode == "upsert":
        _key_is_unique(connection, sink, table)
    return Target(table=table, columns=tuple(columns), carried=tuple(carried), sink=sink)


def _strict(column: Column, sink: Postgres) -> Column:
    """A key or a message number must be there: null would never be recognised again."""
    return replace(column, required=True) if column.name in sink.keys or column.name == sink.dedupe else column


def _create(connection: Any, sink: Postgres, table: str, fields: dict[str, str]) -> dict[str, TableColumn]:
    if not sink.create:
        raise UsageError(
            f"table {sink.table} does not exist in {sink.where}. Next: create it, or set create=True to have it made "
            "from the schema of the rows."
        )
    made = [for_new_table(name, spark_type, required=name in sink.keys) for name, spark_type in fields.items()]
    parts = [f"{quoted(c.name)} {c.sql}{' NOT NULL' if c.required else ''}" for c in made]
    if sink.keys:
        parts.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in sink.keys)})")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})")
    return inspect(connection, table)


def _nothing_missing(sink: Postgres, existing: dict[str, TableColumn], columns: list[Column]) -> None:
    given = {column.name for column in columns}
    missing = [c.name for c in existing.values() if c.required and not c.default and c.name not in given]
    if missing:
        raise UsageError(
            f"table {sink.table} needs {', '.join(missing)} (NOT NULL without a default), and the DataFrame has only "
            f"{', '.join(sorted(given))}. Next: add it in the transform, or give the column a default."
        )
    if not columns:
        raise UsageError(f"no column of the DataFrame is in table {sink.table}, which has {', '.join(existing)}")


_UNIQUE = """
SELECT 1 FROM pg_index i
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
       WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) = %s
"""


def _key_is_unique(connection: Any, sink: Postgres, table: str) -> None:
    found = connection.execute(_UNIQUE, (table, sorted(sink.keys))).fetchone()
    if found is None:
        names = ", ".join(sink.keys)
        raise UsageError(
            f"upsert by ({names}) needs a unique index on exactly these columns of {sink.table}, and there is none. "
            f"Next: CREATE UNIQUE INDEX ON {sink.table} ({names})."
        )
