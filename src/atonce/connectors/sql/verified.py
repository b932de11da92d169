"""A table source under `atonce verify`: an outbox on scratch, in the kind of database that the pipeline reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atonce.connectors.contract import Feed, Ground, InputRecord
from atonce.connectors.sql.database import TableRef, is_postgres

TABLE = "outbox"


def text_columns(asked: Sequence[str] | None, id_column: str) -> list[str]:
    """Those the pipeline names besides the id, else `key` and `value`."""
    return [name for name in asked or ("key", "value") if name != id_column] or ["value"]


def values(record: InputRecord, columns: int) -> tuple[str, ...]:
    """The last column holds the record's value, the others its key."""
    return (*[(record.key or b"").decode()] * (columns - 1), record.value.decode())


def known(id_column: str, columns: Sequence[str], records: Sequence[InputRecord]) -> dict[str, list[Any]]:
    """Column → values, as the rows have them when they are inserted in this order."""
    rows = [values(record, len(columns)) for record in records]
    return {
        id_column: list(range(1, len(rows) + 1)),
        **{name: [row[at] for row in rows] for at, name in enumerate(columns)},
    }


def scratch_url(url: str, ground: Ground) -> str:
    if not is_postgres(url):
        return f"sqlite:///{ground.folder / 'in.db'}"
    from atonce.connectors.sql.postgres.verified.database import scratch_database

    return scratch_database(ground).direct


def outbox_feed(table: TableRef, ground: Ground) -> Feed:
    columns = text_columns(table.columns, table.column)
    if not is_postgres(table.url):
        from atonce.connectors.sql.sqlite.verified import OutboxFeed

        return OutboxFeed(ground.folder / "in.db", table.column, columns)
    from atonce.connectors.sql.postgres.verified.outbox import PostgresOutboxFeed

    return PostgresOutboxFeed(scratch_url(table.url, ground), table.column, columns)
