"""Where a batch goes in DuckDB: the DataFrame's columns against the table's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from atonce.connectors.sql.bad_rows import NOT_STORED, POSITION
from atonce.connectors.sql.beside.evolve import Evolution
from atonce.connectors.sql.columns import memory_fits, named_columns_are_there, nulls_fit_a_deletion, stored_columns_fit
from atonce.connectors.sql.duckdb.file import DuckFile, first_line
from atonce.connectors.sql.duckdb.merge import insert, listed, quoted
from atonce.delivery.letters import ORIGIN
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.connectors.sql.duckdb.sink import DuckDB

_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "decimal": "DECIMAL",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
_WIDER = (("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), ("FLOAT", "DOUBLE"))
_NAME = re.compile(r'"(?:[^"]|"")*"')
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckTarget:
    """One table, and the columns of one DataFrame schema that go into it."""

    sink: DuckDB
    types: dict[str, str]
    """Column → DuckDB's type, of all columns that are selected; the table's own type where it is stored."""
    written: tuple[str, ...]
    not_null: frozenset[str] = frozenset()

    @property
    def table(self) -> str:
        return quoted(self.sink.table)

    @property
    def selected(self) -> list[str]:
        """The written columns first; then those that only order rows, or name them."""
        return [*self.written, *(name for name in self.types if name not in self.written)]

    @property
    def required(self) -> frozenset[str]:
        """Null is no value of theirs; a deletion brings null for all but its key and order."""
        return frozenset(self.sink.lasting) | (frozenset() if self.sink.flag else self.not_null)

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
        taken = {*self.sink.keys, *self.places, self.sink.flag}
        return tuple(name for name in self.written if name not in taken)

    @property
    def remembered(self) -> tuple[str, ...]:
        """What is left of a deleted row."""
        return tuple(dict.fromkeys((*self.sink.keys, *self.places)))

    @property
    def seen(self) -> str:
        return quoted(f"atonce_seen_{self.sink.table}")

    @property
    def memory(self) -> str:
        return f"atonce_deleted_{self.sink.table}"


def table_columns(file: DuckFile, table: str) -> dict[str, tuple[str, bool]]:
    """Column → type, and whether it may be null; empty when there is no such table."""
    found = file.execute(
        "SELECT column_name, data_type, is_nullable FROM duckdb_columns() JOIN duckdb_tables() USING (table_oid) "
        "WHERE duckdb_columns.table_name = ? AND duckdb_columns.schema_name = 'main' AND NOT temporary "
        "AND duckdb_columns.database_name = current_database() AND duckdb_tables.database_name = current_database() "
        "ORDER BY column_index",
        (table,),
    )
    return {name: (kind, bool(nullable)) for name, kind, nullable in found.fetchall()}


def resolve(file: DuckFile, sink: DuckDB, schema: object) -> DuckTarget:
    """Match the DataFrame's schema to the table, making the table first when asked. `UsageError` names what is off."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}  # type: ignore[attr-defined]
    types = {name: _duck_type(name, kind) for name, kind in fields.items()}
    named_columns_are_there(sink, fields)
    existing = table_columns(file, sink.table)
    if not existing:
        _create(file, sink, types)
        existing = table_columns(file, sink.table)
    stored_columns_fit(sink, sink.table, existing)
    loose = (*sink.orders, sink.dedupe, sink.delete, *NOT_STORED)
    extra = [name for name in types if name not in existing and name not in loose]
    if extra and sink.evolve:
        Evolution(connection=file, table=sink.table, quoted_table=quoted(sink.table)).add(
            {name: kind for name, (kind, _) in existing.items()}, {name: types[name] for name in extra}
        )
        existing = table_columns(file, sink.table)
    elif extra:
        raise UsageError(
            f"the DataFrame has a column {extra[0]}, but table {sink.table} has only {', '.join(existing)}. "
            "Next: leave it out in the transform, add it to the table, or set evolve: true."
        )
    for name, kind in types.items():
        if name in existing and not _fits(kind, existing[name][0]):
            raise UsageError(
                f"column {name}: rows bring {kind}, and table {sink.table} has {existing[name][0]}, which would change "
                "values. Next: cast it in the transform, or ALTER TABLE."
            )
    target = DuckTarget(
        sink=sink,
        types={name: existing[name][0] if name in existing else kind for name, kind in types.items()},
        written=tuple(name for name in types if name in existing),
        not_null=frozenset(name for name in types if name in existing and not existing[name][1]),
    )
    _check(file, target)
    return target


def _check(file: DuckFile, target: DuckTarget) -> None:
    sink = target.sink
    if sink.soft_delete is not None:
        nulls_fit_a_deletion(sink.table, sorted(target.not_null & {*target.others}))
    if sink.remembers_deletes:
        memory_fits(target.memory, table_columns(file, target.memory), target.remembered)
    if sink.mode == "upsert":
        _refuse_collations(file, sink)
    values = ", ".join(f"CAST(NULL AS {target.types[name]}) AS {quoted(name)}" for name in target.written)
    try:
        # DuckDB itself is asked: it looks at indexes and generated columns as the insert will.
        file.execute(f"EXPLAIN {insert(target, f'(SELECT {values})')}").fetchall()
        indexed = sink.mode == "append" or not _by_expression(file, sink)
    except duckdb.BinderException as error:
        indexed = "conflict target" not in str(error)
        if indexed:
            raise UsageError(f"table {sink.table} in {sink.path} takes no such rows: {first_line(error)}") from None
    if not indexed:
        names = ", ".join(sink.keys)
        raise UsageError(
            f"upsert by ({names}) needs a unique index on exactly these columns of {sink.table}, and there is none. "
            f"Next: CREATE UNIQUE INDEX {sink.table}_key ON {sink.table} ({names})."
        )


def _by_expression(file: DuckFile, sink: DuckDB) -> bool:
    """Whether a unique index goes by an expression: DuckDB takes one on lower(key) for one on key."""
    found = file.execute(
        "SELECT expressions FROM duckdb_indexes() WHERE is_unique AND table_name = ? AND schema_name = 'main' "
        "AND database_name = current_database()",
        (sink.table,),
    )
    return any("(" in _NAME.sub("", expressions) for (expressions,) in found.fetchall())


def _refuse_collations(file: DuckFile, sink: DuckDB) -> None:
    """Its indexes go by bytes and its comparisons by the collation: which rows are of one key would be unclear."""
    found = file.execute(
        "SELECT sql FROM duckdb_tables() WHERE table_name = ? AND schema_name = 'main' AND NOT temporary",
        (sink.table,),
    ).fetchone()
    if found is not None and re.search(r"\bCOLLATE\b", found[0], re.IGNORECASE):
        raise UsageError(
            f"table {sink.table} has a column with COLLATE, by which an upsert cannot tell keys. Next: make the table "
            "again without it."
        )


def _create(file: DuckFile, sink: DuckDB, types: dict[str, str]) -> None:
    if not sink.create:
        raise UsageError(f"table {sink.table} does not exist in {sink.path}. Next: create it, or set create=True.")
    made = {name: kind for name, kind in types.items() if name != sink.delete and name not in ORIGIN}
    parts = [f"{quoted(name)} {kind}{' NOT NULL' if name in sink.keys else ''}" for name, kind in made.items()]
    if sink.keys:
        parts.append(f"PRIMARY KEY ({listed(sink.keys)})")
    file.execute(f"CREATE TABLE {quoted(sink.table)} ({', '.join(parts)})")


def _duck_type(name: str, spark_type: str) -> str:
    base = re.sub(r"\(.*", "", spark_type).split(" ")[0]
    base = "string" if base in ("varchar", "char") else base
    if base not in _TYPES:
        raise UsageError(
            f"column {name}: Spark's type {spark_type} has no counterpart in a table row. "
            f"Allowed: {', '.join(_TYPES)}. Next: turn it into a string with to_json({name}), or leave it out."
        )
    return spark_type.upper() if base == "decimal" else _TYPES[base]


def _fits(brought: str, declared: str) -> bool:
    """Whether the column holds every value of the rows' type as it is: DuckDB would round, cut or shift others."""
    given, kept = (_DECIMAL.fullmatch(kind) for kind in (brought, declared))
    if given is not None and kept is not None:
        precision, scale, wider, finer = (int(number) for match in (given, kept) for number in match.groups())
        return finer >= scale and wider - finer >= precision - scale
    if brought == declared:
        return True
    return any(brought in row and declared in row[row.index(brought) :] for row in _WIDER)
