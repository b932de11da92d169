"""Tables by their address, for programs that are not pipelines: `atonce verify --output-table URL#TABLE`."""

from __future__ import annotations

from atonce.connectors.contract import EmptiedTable
from atonce.errors import UsageError


def table_at(address: str) -> EmptiedTable:
    """`URL#TABLE`: postgresql://… or sqlite:///path."""
    url, found, table = address.rpartition("#")
    if not found or not table:
        raise UsageError(f"--output-table {address!r} is not URL#TABLE, such as postgresql://host/db#orders")
    if url.startswith(("postgresql://", "postgres://")):
        from atonce.connectors.sql.postgres.verified.table import PostgresTable

        return PostgresTable(url, table)
    if url.startswith("sqlite:"):
        from atonce.connectors.sql.sqlite.verified import SQLiteTable

        return SQLiteTable(url.removeprefix("sqlite:").removeprefix("//"), table)
    raise UsageError(f"--output-table {address!r}: only postgresql:// and sqlite:/// tables can be audited")
