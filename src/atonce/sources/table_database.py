"""The table source's view of a database: its columns, how far it may be read, and its rows as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from atonce.errors import RetriableError, UsageError

SETTLE_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """Which rows: all that a planning process or a task needs to know."""

    url: str
    table: str
    column: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumn:
    name: str
    spark: str
    """Spark's type as DDL."""
    expression: str
    """What is selected, so that the result has a type that Arrow knows."""


class TableDatabase(Protocol):
    @property
    def where(self) -> str:
        """For people, without secrets."""

    def check(self) -> None: ...

    def columns(self) -> list[ReadColumn]: ...

    def bounds(self) -> tuple[int, int]:
        """The first id, and one after the last, as they are visible now; (0, 0) when there are no rows."""

    def safe_end(self, start: int, wait_s: float) -> int:
        """One after the last id such that nothing below can still appear; `start` when that cannot be told yet."""

    def limited_end(self, start: int, end: int, rows: int) -> int:
        """`end`, or less, so that at most `rows` rows are between."""

    def read(self, start: int, end: int) -> Iterator[Any]:
        """Rows with start ≤ id < end in order, as Arrow record batches of the columns."""


def settled_end(database: TableDatabase, table: str) -> int:
    """One after the last id there is now, once nothing below it can still appear. `RetriableError` after a while."""
    first, after_last = database.bounds()
    end = database.safe_end(first, SETTLE_WAIT_S)
    if end < after_last:
        raise RetriableError(
            f"table {table} has had an open writing transaction for {SETTLE_WAIT_S:g} s. Ids below {after_last} may "
            "still appear, so nothing was read. Next: end that transaction (see pg_stat_activity)."
        )
    return end


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://")) or ("dbname=" in url and "=" in url)


def database_for(ref: TableRef) -> TableDatabase:
    if is_postgres(ref.url):
        from atonce.sources.table_postgres import PostgresTable

        return PostgresTable(ref)
    from atonce.sources.table_sqlite import SqliteTable

    return SqliteTable(ref)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def wanted_columns(ref: TableRef, found: dict[str, ReadColumn]) -> list[ReadColumn]:
    """Those asked for, or all; `UsageError` names what is missing."""
    if not found:
        raise UsageError(f"table {ref.table} does not exist or has no columns. Next: create it, or correct its name.")
    missing = [name for name in (ref.column, *(ref.columns or ())) if name not in found]
    if missing:
        raise UsageError(f"table {ref.table} has no column {missing[0]}; it has {', '.join(found)}")
    return [found[name] for name in (ref.columns or found)]
