"""From the staging table into the table: upsert, dedupe, and the search for rows that the server refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from atonce.connectors.sql.bad_rows import bad_row, undeliverable
from atonce.connectors.sql.beside.letters import Keeping, LetterTable, all_aside, is_older, kept_as
from atonce.connectors.sql.postgres import merge as postgres_merge
from atonce.connectors.sql.postgres.making import lock_for_create
from atonce.connectors.sql.postgres.merge import staged_between
from atonce.connectors.sql.postgres.names import qualified, quoted
from atonce.connectors.sql.postgres.rows import refuses_row, words
from atonce.connectors.sql.postgres.target import Target
from atonce.connectors.sql.postgres.types import inspect
from atonce.delivery.contract import Batch

if TYPE_CHECKING:
    from atonce.connectors.sql.postgres.sink import Postgres

_Connection = psycopg.Connection[Any]
_LETTER_TYPES = {"text": "text", "int": "bigint", "bytes": "bytea", "time": "timestamp"}


def merge(
    connection: _Connection, batch: Batch, target: Target, values: Mapping[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    """Everything staged, into the table. Returns the rows written, and the refused ones if those are put aside."""
    try:
        return _merge_part(connection, target, values, "TRUE"), []
    except psycopg.Error as error:
        if not refuses_row(error):
            raise
        staged = connection.execute(f"SELECT count(*) FROM {target.staging}".encode()).fetchone()
    dead: list[dict[str, Any]] = []
    written = _merge_around(connection, batch, target, values, (0, staged[0] if staged else 0), dead)
    return written, dead


def _merge_around(
    connection: _Connection,
    batch: Batch,
    target: Target,
    values: Mapping[str, Any],
    span: tuple[int, int],
    dead: list[dict[str, Any]],
) -> int:
    """Halve what fails until single rows are left: a few bad rows cost a few dozen statements, not one per row.

    The halves follow the order that decides which row of a key wins, so that a later half may overwrite an earlier.
    """
    first, size = span
    if size == 0:
        return 0
    where = staged_between(target, first, size)
    try:
        return _merge_part(connection, target, values, where)
    except psycopg.Error as error:
        if not refuses_row(error):
            raise
        if size == 1:
            with connection.cursor(row_factory=dict_row) as cursor:
                row = cursor.execute(f"SELECT * FROM {target.staging} WHERE {where}".encode()).fetchone() or {}
            found = bad_row({name: row.get(name) for name in target.selected}, words(error))
            if target.sink.on_error == "stop":
                raise undeliverable(found, target.sink.table, batch) from error
            dead.append(found)
            return 0
    half = size // 2
    written = _merge_around(connection, batch, target, values, (first, half), dead)
    return written + _merge_around(connection, batch, target, values, (first + half, size - half), dead)


def _merge_part(connection: _Connection, target: Target, values: Mapping[str, Any], where: str) -> int:
    connection.execute("SAVEPOINT atonce_part")
    try:
        cursor = connection.execute(postgres_merge.merge(target, where).encode(), values)
        done = cursor.rowcount if cursor.description is None else int((cursor.fetchone() or (0,))[0])
    except psycopg.Error:
        if not connection.broken:
            connection.execute("ROLLBACK TO SAVEPOINT atonce_part")
        raise
    connection.execute("RELEASE SAVEPOINT atonce_part")
    return done


def put_aside(
    connection: _Connection, target: Target, pipeline: str, source: object, batch: Batch, dead: Sequence[Any]
) -> None:
    """The rows that could not be delivered, into the dead-letter table, in the same transaction."""
    found = all_aside(batch, target.sink, target.sink.table, dead)
    table = letter_table(target.sink)
    if not found and not batch.again_from:
        return
    there = list(inspect(connection, table.name))
    older = is_older(there)
    with connection.cursor() as cursor:
        keeping = Keeping(
            table=table,
            names=(pipeline, target.sink.table),
            source=source,
            run=lambda sql, values: cursor.execute(sql.encode(), values),
            many=lambda sql, rows: cursor.executemany(sql.encode(), rows),
        )
        if there and not older:
            keeping.take_back(batch)
        if not found:
            return
        if older or not there:
            lock_for_create(connection)
            there = list(inspect(connection, table.name))
            older = is_older(there)
        if older:
            kept = quoted(kept_as(target.sink.letters_beside(target.sink.table).rpartition(".")[2]))
            cursor.execute(f"ALTER TABLE {table.name} RENAME TO {kept}".encode())
        if older or not there:
            cursor.execute(table.create().encode())
        keeping.keep(batch, found)


def letter_table(sink: Postgres) -> LetterTable:
    return LetterTable(name=qualified(sink.letters_beside(sink.table)), types=_LETTER_TYPES, placeholder="%s")


def newest_and_now(connection: _Connection, table: str, column: str) -> tuple[Any, float]:
    """The newest time in a memory (None: it is empty), and the database's clock; both in seconds since 1970."""
    times = f"extract(epoch FROM max({column}))::float8, extract(epoch FROM now())::float8"
    found = connection.execute(f"SELECT {times} FROM {table}".encode()).fetchone()
    return found if found is not None else (None, 0.0)


def move_up(connection: _Connection, table: str, column: str, by_s: float) -> None:
    """Everything in a memory, younger by so many seconds."""
    moved = f"UPDATE {table} SET {column} = {column} + make_interval(secs => %s)"
    connection.execute(moved.encode(), (by_s,))


def prune_seen(connection: _Connection, target: Target, oldest: float) -> None:
    """Forget message numbers older than the user's age."""
    connection.execute(f"DELETE FROM {target.seen} WHERE seen_at < to_timestamp(%s)".encode(), (oldest,))


def prune_deleted(connection: _Connection, target: Target, oldest: float) -> None:
    """Forget deletions older than `deletes_keep`."""
    connection.execute(f"DELETE FROM {target.deleted} WHERE deleted_at < to_timestamp(%s)".encode(), (oldest,))
