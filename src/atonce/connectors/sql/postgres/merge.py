"""The SQL that takes staged rows into a PostgreSQL table: numbers seen before dropped, the newest row of a key kept.

"Newest" is one order, the same inside a batch and against the stored row: the user's columns, then the row's place in
the input where the table holds it, then a deletion before a row, then the other columns. Text goes by its bytes, as in
Spark; everything is compared by the server and by nobody else.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from atonce.connectors.sql.newer import newer
from atonce.connectors.sql.postgres.names import beside, quoted
from atonce.connectors.sql.postgres.types import Column
from atonce.connectors.sql.task import ROW_COLUMN, TASK_COLUMN

if TYPE_CHECKING:
    from atonce.connectors.sql.postgres.target import Target

_MOST_BYTES_OF_A_NAME = 63
_BYTES = 'COLLATE "C"'


def merge(target: Target, where: str = "TRUE") -> str:
    """One statement: the staged rows for which `where` holds, into the table. How many changed is its row count, or,
    where it has a result, in that."""
    steps, rows = _fresh(target, f"(SELECT * FROM {target.staging} WHERE {where})")
    cast = ", ".join(f"{quoted(c.name)}::{c.sql}" for c in target.columns)
    if target.sink.mode == "append":
        return _with(steps, f"INSERT INTO {target.table} ({target.names}) SELECT {cast} FROM {rows} AS rows")
    keys = ", ".join(as_stored(c, quoted(c.name)) for c in target.keys)
    newest = f"SELECT DISTINCT ON ({keys}) * FROM {rows} AS rows ORDER BY {keys}, {order_of(target, 'DESC')}"
    if target.sink.delete is None:
        return _with(steps, _upsert(target, cast, f"({newest}) AS newest"))
    steps.append(f"newest AS MATERIALIZED ({newest})")
    winning = "newest"
    if target.sink.remembers_deletes:
        steps.append(f"winning AS MATERIALIZED ({_winning(target)})")
        winning = "winning"
    gone = f"coalesce({winning}.{quoted(target.sink.delete)}, FALSE)"
    steps.append(
        f"removed AS (DELETE FROM {target.table} AS stored USING {winning} "
        f"WHERE {gone} AND {_same_key(target, winning, 'stored')} RETURNING 1)"
    )
    if target.sink.remembers_deletes:
        steps += _remember(target, gone)
    steps.append(f"changed AS ({_upsert(target, cast, f'{winning} WHERE NOT {gone}')} RETURNING 1)")
    return _with(steps, "SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM changed)")


def staged_between(target: Target, first: int, size: int) -> str:
    """A condition for `merge`: `size` staged rows from the `first`-th, in the order that decides which wins."""
    number = f"{TASK_COLUMN}, {ROW_COLUMN}"
    return (
        f"({number}) IN (SELECT {number} FROM {target.staging} "
        f"ORDER BY {number if target.sink.mode == 'upsert' else order_of(target, 'ASC')} OFFSET {first} LIMIT {size})"
    )


def order_of(target: Target, direction: str) -> str:
    """How staged rows are ordered: what is newer comes last, or first when `direction` is DESC."""
    nulls = "LAST" if direction == "DESC" else "FIRST"
    wanted = [compared(c, quoted(c.name), staged=True) for c in (*target.orders, *target.ties)]
    if target.orders and target.sink.mode == "upsert":
        if target.sink.flag is not None:
            wanted.append(f"coalesce({quoted(target.sink.flag)}, FALSE)")
        wanted += [compared(c, quoted(c.name), staged=True) for c in target.others]
    sorted_by = [f"{each} {direction} NULLS {nulls}" for each in wanted]
    return ", ".join([*sorted_by, f"{TASK_COLUMN} {direction}", f"{ROW_COLUMN} {direction}"])


def as_stored(column: Column, reference: str) -> str:
    """A staged value as the table would hold it, so that it equals what the table takes for equal."""
    plain = column.sql == "text" or column.sql.startswith("character varying")
    return reference if column.wire != "text" or plain else f"{reference}::{column.sql}"


def compared(column: Column, reference: str, *, staged: bool = False) -> str:
    """A value as it is ordered. What is staged as text is first made what the table would hold."""
    if column.wire == "text" and not column.enum:
        return f"({as_stored(column, reference) if staged else reference})::text {_BYTES}"
    if column.wire in ("json", "jsonb"):
        return f"({reference}::{column.wire})::text {_BYTES}"
    return f"{reference}::{column.sql}" if column.enum and staged else reference


def deleted_table(table: str) -> str:
    """Where the order of deleted rows is kept."""
    return _memory("atonce_deleted_", table)


def seen_table(table: str) -> str:
    """Where message numbers are kept."""
    return _memory("atonce_seen_", table)


def cut_seen_table(table: str) -> str | None:
    """Where they were kept under a name that PostgreSQL had cut; None: the name is short enough."""
    name = f"atonce_seen_{table.rpartition('.')[2]}".encode()
    if len(name) <= _MOST_BYTES_OF_A_NAME:
        return None
    return beside(table, name[:_MOST_BYTES_OF_A_NAME].decode(errors="ignore"))


def _memory(prefix: str, table: str) -> str:
    """A table of ours beside the user's; a name too long for PostgreSQL is cut, and stays one table's own."""
    name = f"{prefix}{table.rpartition('.')[2]}"
    if len(name.encode()) > _MOST_BYTES_OF_A_NAME:
        name = f"{prefix}{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return beside(table, name)


def create_deleted(target: Target) -> str:
    parts = [
        f"{quoted(c.name)} {c.sql}{f' COLLATE {c.collation}' if c.collation else ''}"
        f"{'' if c in target.ties else ' NOT NULL'}"
        for c in (*target.keys, *target.orders, *target.ties)
    ]
    keys = ", ".join(quoted(c.name) for c in target.keys)
    return (
        f"CREATE TABLE IF NOT EXISTS {target.deleted} ({', '.join(parts)}, deleted_at timestamptz NOT NULL, "
        f"PRIMARY KEY ({keys}))"
    )


def create_seen(target: Target) -> str:
    column = next(c for c in target.columns + target.carried if c.name == target.sink.dedupe)
    return (
        f"CREATE TABLE IF NOT EXISTS {target.seen} (number {column.sql} NOT NULL PRIMARY KEY, "
        "seen_at timestamptz NOT NULL)"
    )


def _with(steps: list[str], last: str) -> str:
    return f"WITH {', '.join(steps)} {last}" if steps else last


def _fresh(target: Target, rows: str) -> tuple[list[str], str]:
    """Without the rows whose numbers were seen before, or came twice."""
    if target.sink.dedupe is None:
        return [], rows
    number = quoted(target.sink.dedupe)
    fresh = (
        f"fresh AS (INSERT INTO {target.seen} (number, seen_at) "
        f"SELECT DISTINCT {number}, to_timestamp(%(seen_at)s) FROM {rows} AS incoming "
        # In order: two pipelines that bring the same numbers wait for each other, and not both at once.
        f"ORDER BY {number} ON CONFLICT DO NOTHING RETURNING number)"
    )
    return [fresh], (
        f"(SELECT DISTINCT ON ({number}) incoming.* FROM {rows} AS incoming "
        f"JOIN fresh ON fresh.number = incoming.{number} ORDER BY {number}, {order_of(target, 'ASC')})"
    )


def _upsert(target: Target, cast: str, rows: str) -> str:
    names = [c.name for c in target.columns if c.name not in target.sink.keys or (c.collation and target.orders)]
    change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names)
    into = f"INSERT INTO {target.table} AS stored ({target.names}) SELECT {cast} FROM {rows}"
    key = ", ".join(quoted(c.name) for c in target.keys)
    if not change:
        return f"{into} ON CONFLICT ({key}) DO NOTHING"
    condition = f" WHERE {newer(_pairs(target, 'excluded', 'stored'))}" if target.orders else ""
    return f"{into} ON CONFLICT ({key}) DO UPDATE SET {change}{condition}"


def _pairs(target: Target, left: str, right: str) -> list[tuple[str, str]]:
    flag = [c for c in target.columns if c.name == target.sink.soft_delete]
    return [
        (compared(c, f"{left}.{quoted(c.name)}"), compared(c, f"{right}.{quoted(c.name)}"))
        for c in (*target.orders, *target.ties, *flag, *target.others)
    ]


def _winning(target: Target) -> str:
    """Of the newest rows of this batch, those that are newer than the stored row, and than the key's deletion."""
    gone = f"coalesce(newest.{quoted(target.sink.delete or '')}, FALSE)"

    def against(columns: tuple[Column, ...], other: str) -> list[tuple[str, str]]:
        return [
            (compared(c, f"newest.{quoted(c.name)}", staged=True), compared(c, f"{other}.{quoted(c.name)}"))
            for c in columns
        ]

    places = (*target.orders, *target.ties)
    # Only what a deletion brings of key and order counts: the rest of it may be null where null cannot be.
    others = f"CASE WHEN {gone} THEN TRUE ELSE {newer(against(target.others, 'stored'))} END"
    first = quoted(target.keys[0].name)
    return (
        f"SELECT newest.* FROM newest "
        f"LEFT JOIN {target.table} AS stored ON {_same_key(target, 'newest', 'stored')} "
        f"LEFT JOIN {target.deleted} AS deleted ON {_same_key(target, 'newest', 'deleted')} "
        f"WHERE (stored.{first} IS NULL OR {newer(against(places, 'stored'), others)}) "
        f"AND (deleted.{first} IS NULL OR {newer(against(places, 'deleted'))})"
    )


def _remember(target: Target, gone: str) -> list[str]:
    columns = (*target.keys, *target.orders, *target.ties)
    names = ", ".join(quoted(c.name) for c in columns)
    cast = ", ".join(f"{quoted(c.name)}::{c.sql}" for c in columns)
    key = ", ".join(quoted(c.name) for c in target.keys)
    change = ", ".join(
        f"{quoted(name)} = excluded.{quoted(name)}"
        for name in (*[c.name for c in columns if c not in target.keys], "deleted_at")
    )
    return [
        f"remembered AS (INSERT INTO {target.deleted} ({names}, deleted_at) "
        f"SELECT {cast}, to_timestamp(%(deleted_at)s) FROM winning WHERE {gone} "
        f"ON CONFLICT ({key}) DO UPDATE SET {change})",
        f"forgotten AS (DELETE FROM {target.deleted} AS deleted USING winning "
        f"WHERE NOT {gone} AND {_same_key(target, 'winning', 'deleted')})",
    ]


def _same_key(target: Target, staged: str, other: str) -> str:
    return " AND ".join(f"{other}.{quoted(c.name)} = {as_stored(c, f'{staged}.{quoted(c.name)}')}" for c in target.keys)
