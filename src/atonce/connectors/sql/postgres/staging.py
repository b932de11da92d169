"""From the staging table into the table: upsert, dedupe, and the search for rows that the server refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from atonce.connectors.sql.bad_rows import DEAD_LETTER_COLUMNS, bad_row, dead_letter_values, undeliverable
from atonce.connectors.sql.postgres import merge as postgres_merge
from atonce.connectors.sql.postgres.merge import staged_between
from atonce.connectors.sql.postgres.names import qualified, quoted
from atonce.connectors.sql.postgres.rows import refuses_row, words
from atonce.connectors.sql.postgres.target import Target
from atonce.delivery.contract import Batch

_Connection = psycopg.Connection[Any]
_DEAD_LETTER = """
CREATE TABLE IF NOT EXISTS {table} (pipeline text NOT NULL, batch_id bigint NOT NULL, input_topic text,
    input_partition bigint, input_offset bigint, reason text NOT NULL, row_json text NOT NULL,
    at timestamptz NOT NULL DEFAULT now())"""


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


def put_aside(connection: _Connection, target: Target, pipeline: str, batch: Batch, dead: Sequence[Any]) -> None:
    """The rows that could not be delivered, into the dead-letter table, in the same transaction."""
    if not dead:
        return
    table = qualified(target.sink.dead_letter or f"{target.sink.table}_dead_letter")
    if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
        connection.execute(_DEAD_LETTER.format(table=table).encode())
    names = ", ".join(quoted(name) for name in DEAD_LETTER_COLUMNS)
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy:
        for bad in dead:
            copy.write_row(dead_letter_values(bad, pipeline, batch.plan.batch_id))


def newest_and_now(connection: _Connection, table: str, column: str, where: str, values: Any) -> tuple[Any, float]:
    """The newest time in a memory (None: it is empty), and the database's clock; both in seconds since 1970."""
    times = f"extract(epoch FROM max({column}))::float8, extract(epoch FROM now())::float8"
    found = connection.execute(f"SELECT {times} FROM {table} {where}".encode(), values).fetchone()
    return found if found is not None else (None, 0.0)


def move_up(connection: _Connection, table: str, column: str, where: str, values: Any, by_s: float) -> None:
    """Everything in a memory, younger by so many seconds."""
    moved = f"UPDATE {table} SET {column} = {column} + make_interval(secs => %s) {where}"
    connection.execute(moved.encode(), (by_s, *values))


def prune_seen(connection: _Connection, target: Target, pipeline: str, oldest: float) -> None:
    """Forget message numbers older than the user's age."""
    connection.execute(
        f"DELETE FROM {target.seen} WHERE pipeline = %s AND seen_at < to_timestamp(%s)".encode(), (pipeline, oldest)
    )


def prune_deleted(connection: _Connection, target: Target, oldest: float) -> None:
    """Forget deletions older than `deletes_keep`."""
    connection.execute(f"DELETE FROM {target.deleted} WHERE deleted_at < to_timestamp(%s)".encode(), (oldest,))
