"""Where a batch goes: the DataFrame's columns against the table's, the table made when asked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from atonce.connectors.sql.bad_rows import NOT_STORED, POSITION
from atonce.connectors.sql.beside.evolve import TABLE as EVOLUTIONS
from atonce.connectors.sql.beside.evolve import Evolution
from atonce.connectors.sql.columns import memory_fits, named_columns_are_there, nulls_fit_a_deletion, stored_columns_fit
from atonce.connectors.sql.postgres.making import lock_for_create
from atonce.connectors.sql.postgres.merge import deleted_table, seen_table
from atonce.connectors.sql.postgres.names import beside, qualified, quoted
from atonce.connectors.sql.postgres.task import NUMBERING
from atonce.connectors.sql.postgres.types import Column, TableColumn, for_existing_column, for_new_table, inspect
from atonce.delivery.letters import ORIGIN
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.connectors.sql.postgres.sink import Postgres


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
        return tuple(_unconstrained(column) for column in self.columns + self.carried)

    @property
    def staging(self) -> str:
        digest = hashlib.sha256(repr((self.table, self.staging_columns())).encode()).hexdigest()[:16]
        return f"pg_temp.{quoted('atonce_stage_' + digest)}"

    def create_staging(self) -> str:
        """A temporary table is not logged, belongs to this connection alone, and is emptied by every commit."""
        columns = ", ".join(f"{quoted(c.name)} {self._staging_type(c)}" for c in (*self.staging_columns(), *NUMBERING))
        name = self.staging.removeprefix("pg_temp.")
        return f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({columns}) ON COMMIT DELETE ROWS"

    @property
    def keys(self) -> tuple[Column, ...]:
        return self._named(self.sink.keys)

    @property
    def orders(self) -> tuple[Column, ...]:
        """What the user orders rows by; in upsert all of it is stored."""
        return self._named(self.sink.orders)

    @property
    def ties(self) -> tuple[Column, ...]:
        """What decides between rows of equal order: their place in the input, as far as the table holds it."""
        if self.sink.mode != "upsert" or not self.sink.orders:
            return ()
        taken = {*self.sink.keys, *self.sink.orders, self.sink.flag}
        stored = {column.name for column in self.columns if column.wire not in ("json", "jsonb")}
        return self._named(tuple(name for name in POSITION if name in stored and name not in taken))

    @property
    def others(self) -> tuple[Column, ...]:
        """The columns that are neither key nor order."""
        # Keys that are alike and not the same ('a' and 'A' under some collations) are compared as other columns are.
        keys = (column for column in self.keys if not column.collation)
        taken = {column.name for column in (*keys, *self.orders, *self.ties)} | {self.sink.flag}
        return tuple(column for column in self.columns if column.name not in taken)

    @property
    def seen(self) -> str:
        return seen_table(self.sink.table)

    @property
    def deleted(self) -> str:
        return deleted_table(self.sink.table)

    def _named(self, names: tuple[str, ...]) -> tuple[Column, ...]:
        known = {column.name: column for column in self.columns + self.carried}
        return tuple(known[name] for name in names)

    def _staging_type(self, column: Column) -> str:
        """Keys are alike where the table takes them for alike; all other text goes by its bytes."""
        kind = "text" if column.wire == "text" else column.sql
        if column.name in self.sink.keys:
            return f"{kind} COLLATE {column.collation}" if column.collation else kind
        return f'{kind} COLLATE "C"' if kind == "text" else kind


def _unconstrained(column: Column) -> Column:
    if column.wire in ("json", "jsonb") or column.enum:
        return replace(column, wire="text", sql="text")
    return replace(column, sql=column.domain_of) if column.domain_of else column


def resolve(connection: Any, sink: Postgres, schema: Any) -> Target:
    """Match the DataFrame's schema to the table, making the table first when asked. `UsageError` names what is off."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    if len(fields) != len(schema.fields):
        raise UsageError(f"the DataFrame has two columns of one name: {[f.name for f in schema.fields]}")
    named_columns_are_there(sink, fields)
    table = qualified(sink.table)
    existing = inspect(connection, table)
    if not existing:
        existing = _create(connection, sink, table, fields)
    stored_columns_fit(sink, sink.table, existing)
    existing = _evolved(connection, sink, table, fields, existing)
    columns, carried = [], []
    for name, spark_type in fields.items():
        if name in existing:
            columns.append(_strict(for_existing_column(name, spark_type, existing[name]), sink))
        elif name in _loose(sink):
            carried.append(_strict(for_new_table(name, spark_type, required=False), sink))
        else:
            raise UsageError(
                f"the DataFrame has a column {name}, but table {sink.table} has only {', '.join(existing)}. "
                "Next: leave it out in the transform, add it to the table, or set evolve: true."
            )
    _nothing_missing(sink, existing, columns)
    target = Target(table=table, columns=tuple(columns), carried=tuple(carried), sink=sink)
    if sink.mode == "upsert":
        _key_is_unique(connection, sink, table)
        _order_compares(target, existing)
    if sink.remembers_deletes:
        memory_fits(target.deleted, inspect(connection, target.deleted), _remembered(target))
    return target


def _loose(sink: Postgres) -> tuple[str | None, ...]:
    """Columns that the table need not have."""
    return (*sink.orders, sink.dedupe, sink.delete, *NOT_STORED)


def _evolved(
    connection: Any, sink: Postgres, table: str, fields: dict[str, str], existing: dict[str, TableColumn]
) -> dict[str, TableColumn]:
    """The table's columns, with what the rows bring added where that is asked for."""
    missing = [name for name in fields if name not in existing and name not in _loose(sink)]
    if not missing or not sink.evolve:
        return existing
    lock_for_create(connection)  # the table of versions may be missing, and belongs to all tables
    # Two pipelines that add a column at once: the second finds what the first has added.
    connection.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE".encode())
    existing = inspect(connection, table)
    added = {name: for_new_table(name, fields[name], required=False).sql for name in missing if name not in existing}
    if added:
        log = beside(sink.table, EVOLUTIONS)
        Evolution(connection=connection, table=sink.table, quoted_table=table, log=log, placeholder="%s").add(
            {name: column.sql for name, column in existing.items()}, added
        )
    return inspect(connection, table)


def _strict(column: Column, sink: Postgres) -> Column:
    """A key, an order or a message number must be there: null would never be recognised again."""
    return replace(column, required=True) if column.name in sink.lasting else column


def _remembered(target: Target) -> list[str]:
    return [column.name for column in (*target.keys, *target.orders, *target.ties)]


def _order_compares(target: Target, existing: dict[str, TableColumn]) -> None:
    for column in target.orders:
        if column.wire in ("json", "jsonb"):
            raise UsageError(
                f"order_by names column {column.name} of {target.sink.table}, and {column.sql} has no order. "
                "Next: order by a number, a time or text."
            )
    if target.sink.soft_delete is not None:
        must = [c.name for c in target.others if existing[c.name].required]
        nulls_fit_a_deletion(target.sink.table, must)


def _create(connection: Any, sink: Postgres, table: str, fields: dict[str, str]) -> dict[str, TableColumn]:
    if not sink.create:
        raise UsageError(
            f"table {sink.table} does not exist in {sink.where}. Next: create it, or set create=True to have it made "
            "from the schema of the rows."
        )
    made = [
        for_new_table(name, spark_type, required=name in sink.keys)
        for name, spark_type in fields.items()
        if name != sink.delete and name not in ORIGIN
    ]
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
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
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
