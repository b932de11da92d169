"""Which database an address means, of those whose tables can be a source."""

from __future__ import annotations

from atonce.connectors.sql.database import TableDatabase, TableRef


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://")) or ("dbname=" in url and "=" in url)


def database_for(ref: TableRef) -> TableDatabase:
    if is_postgres(ref.url):
        from atonce.connectors.sql.postgres.outbox import PostgresTable

        return PostgresTable(ref)
    from atonce.connectors.sql.sqlite.outbox import SqliteTable

    return SqliteTable(ref)
