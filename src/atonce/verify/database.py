"""The database of a run: verify's own PostgreSQL in a scratch directory, behind a proxy that sees every COMMIT."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from atonce.verify.identity import Out
from atonce.verify.output import PostgresTable
from atonce.verify.pgproxy import PostgresProxy


class ScratchDatabase:
    """A fresh schema for every run. `url` goes through the proxy, `direct` does not."""

    def __init__(self) -> None:
        from atonce.local.postgres import PostgresServer

        self.server: Any = PostgresServer()
        self.server.__enter__()
        parts = conninfo_to_dict(self.server.url)
        self.proxy = PostgresProxy(str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432))
        self._schema = "public"

    @property
    def direct(self) -> str:
        return self._with_schema(str(self.server.url))

    @property
    def url(self) -> str:
        split = urlsplit(str(self.server.url))
        user = f"{split.username}" + (f":{split.password}" if split.password else "") + "@" if split.username else ""
        moved = urlunsplit(("postgresql", f"{user}127.0.0.1:{self.proxy.port}", split.path, "sslmode=disable", ""))
        return self._with_schema(moved)

    def _with_schema(self, url: str) -> str:
        joint = "&" if "?" in url else "?"
        return f"{url}{joint}options=-csearch_path%3D{self._schema}"

    def fresh(self, run: str) -> None:
        """The next run's schema; the former one goes."""
        self.proxy.clear()
        name = "av_" + "".join(c if c.isalnum() else "_" for c in run)[:50]
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            if self._schema != "public":
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self._schema)))
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        self._schema = name

    def close(self) -> None:
        self.proxy.close()
        self.server.__exit__(None, None, None)

    def __enter__(self) -> ScratchDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ScratchTable:
    """The sink's table in whichever schema the present run has."""

    def __init__(self, database: ScratchDatabase, table: str) -> None:
        self._database, self._table = database, table
        self.title = f"PostgreSQL table {table}"

    def rows(self) -> list[Out]:
        return PostgresTable(self._database.direct, self._table).rows()

    def empty(self) -> None:
        return None  # its schema is new
