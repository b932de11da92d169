"""A table's rows, read and emptied with a connection and SQL of their own: nothing here is shared with the sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from atonce.connectors.contract import Merge, ScratchServer, Written
from atonce.connectors.sql.postgres.verified.connection import connected

if TYPE_CHECKING:
    from atonce.connectors.sql.postgres.verified.database import ScratchDatabase


class PostgresTable(Written):
    """A table at an address."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.title = f"PostgreSQL table {name}"

    def _name(self) -> sql.Identifier:
        return sql.Identifier(*self.name.split("."))

    def rows(self) -> list[dict[str, Any]]:
        with connected(self.url) as connection:
            try:
                cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(self._name()))
            except psycopg.errors.UndefinedTable:
                return []
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

    def empty(self) -> None:
        with connected(self.url) as connection:
            try:
                connection.execute(sql.SQL("TRUNCATE {}").format(self._name()))
            except psycopg.errors.UndefinedTable:
                connection.rollback()

    def scratch_copy(self) -> tuple[ScratchServer, Written]:
        from atonce.connectors.sql.postgres.verified.database import ScratchDatabase

        database = ScratchDatabase(self.url, like=self.name)
        return database, ScratchTable(database, self.name)


class ScratchTable(Written):
    """A table in whichever schema the present run has."""

    def __init__(
        self, database: ScratchDatabase, name: str, *, merge: Merge | None = None, sets_aside: bool = False
    ) -> None:
        self._database, self._name = database, name.rpartition(".")[2]
        self.title = f"PostgreSQL table {self._name}"
        self._merge, self.merges, self.sets_aside = merge, merge is not None, sets_aside

    def merge(self) -> Merge | None:
        return self._merge

    def rows(self) -> list[dict[str, Any]]:
        return PostgresTable(self._database.direct, self._name).rows()

    def copy(self) -> Callable[[], None]:
        return self._database.copy()
