"""Which database an address means, of those whose tables can be a source."""

from __future__ import annotations

from atonce.connectors.contract import Feed, Ground, ServerKind
from atonce.connectors.sql.database import TableDatabase, TableRef
from atonce.connectors.sql.verified import text_columns


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://")) or ("dbname=" in url and "=" in url)


def database_for(ref: TableRef) -> TableDatabase:
    if is_postgres(ref.url):
        from atonce.connectors.sql.postgres.outbox import PostgresTable

        return PostgresTable(ref)
    from atonce.connectors.sql.sqlite.outbox import SqliteTable

    return SqliteTable(ref)


# Under `atonce verify`: an outbox on scratch, in the kind of database that the pipeline reads


def scratch_server_for(url: str) -> ServerKind | None:
    if not is_postgres(url):
        return None  # a file will do
    from atonce.connectors.sql.postgres.verified.database import ScratchDatabase

    return ScratchDatabase


def scratch_url(url: str, ground: Ground) -> str:
    if not is_postgres(url):
        return f"sqlite:///{ground.folder / 'in.db'}"
    from atonce.connectors.sql.postgres.verified.database import scratch_database

    return scratch_database(ground).direct


def outbox_feed(ref: TableRef, ground: Ground) -> Feed:
    columns = text_columns(ref.columns, ref.column)
    if not is_postgres(ref.url):
        from atonce.connectors.sql.sqlite.verified import SqliteOutboxFeed

        return SqliteOutboxFeed(ground.folder / "in.db", ref.column, columns)
    from atonce.connectors.sql.postgres.verified.outbox import PostgresOutboxFeed

    return PostgresOutboxFeed(scratch_url(ref.url, ground), ref.column, columns)
