"""The database of a run: verify's own PostgreSQL, or the user's, always in a scratch schema that is made and removed.

A proxy in front of it sees every COMMIT. A database that verify did not start is never stopped, and nothing outside the
scratch schema is written to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from atonce.errors import UsageError
from atonce.verify.audit.identity import Out
from atonce.verify.audit.output import PostgresTable
from atonce.verify.wire.pgproxy import PostgresProxy

PREFIX = "atonce_verify_"
_OWN_SEQUENCES = """
SELECT a.attname FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = to_regclass(%s) AND pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%'"""


class ScratchDatabase:
    """A fresh schema for every run. `url` goes through the proxy, `direct` does not.

    given  the user's database; None: a server of verify's own
    like   a table of the user's whose shape the scratch table of the same name gets
    """

    def __init__(self, given: str | None = None, like: str | None = None) -> None:
        self.server: Any = None
        self._given, self._like = given, like
        self._schema: str | None = None
        if given is None:
            from atonce.local.servers.postgres import PostgresServer

            self.server = PostgresServer()
            self.server.__enter__()
        self._parts = _parts(str(given or self.server.url))
        self.proxy = PostgresProxy(self._parts["host"], int(self._parts["port"]))
        if given is not None:
            self._try_the_proxy()

    def _try_the_proxy(self) -> None:
        """Before anything is made there: does the database let us in, and in clear text, so that we see its COMMITs?"""
        try:
            psycopg.connect(self.url, connect_timeout=10).close()
        except psycopg.Error as error:
            self.proxy.close()
            raise UsageError(
                f"PostgreSQL at {self._parts['host']}:{self._parts['port']} does not let us in through verify's proxy: "
                f"{str(error).strip()}. Next: check the address; TLS cannot be looked into, so the database must allow "
                "connections from this machine without it, or leave --database out to use one of verify's own."
            ) from None

    @property
    def direct(self) -> str:
        return self._url(self._parts["host"], int(self._parts["port"]), {})

    @property
    def url(self) -> str:
        return self._url("127.0.0.1", self.proxy.port, {"sslmode": "disable"})

    def _url(self, host: str, port: int, more: dict[str, str]) -> str:
        parts = self._parts
        user = quote(parts.get("user", ""), safe="")
        if parts.get("password"):
            user += ":" + quote(parts["password"], safe="")
        rest = {k: v for k, v in parts.items() if k not in ("user", "password", "host", "port", "dbname", "options")}
        if host.startswith("/"):
            rest["host"], host = host, ""
        options = parts.get("options", "")
        if self._schema is not None:
            options = f"{options} -csearch_path={self._schema}".strip()
        query = {**rest, **more, **({"options": options} if options else {})}
        where = f"{user}@" * bool(user) + f"{host}:{port}"
        return f"postgresql://{where}/{quote(parts.get('dbname', ''), safe='')}?{urlencode(query, quote_via=quote)}"

    def fresh(self, run: str) -> None:
        """The next run's schema; the former one goes."""
        self.proxy.clear()
        name = (PREFIX + secrets.token_hex(3) + "_" + "".join(c if c.isalnum() else "_" for c in run))[:60]
        with self._connect() as connection:
            self._drop(connection)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
            self._schema = name
            if self._like is not None:
                self._copy_shape(connection, name, self._like)

    def _copy_shape(self, connection: psycopg.Connection[Any], schema: str, table: str) -> None:
        """Same columns, keys and checks, but sequences of its own: the user's must not move."""
        original = sql.Identifier(*table.split("."))
        copy = sql.Identifier(schema, table.rpartition(".")[2])
        try:
            connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(copy, original))
        except psycopg.errors.UndefinedTable:
            return  # the command makes its table itself
        for (column,) in connection.execute(_OWN_SEQUENCES, (copy.as_string(connection),)).fetchall():
            own = sql.Identifier(schema, f"{column}_seq")
            connection.execute(sql.SQL("CREATE SEQUENCE {}").format(own))
            connection.execute(
                sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({})").format(
                    copy, sql.Identifier(column), sql.Literal(own.as_string(connection))
                )
            )

    def copy(self) -> Callable[[], None]:
        """Keeps every table of the run's schema; calling the result puts them all back in one transaction."""
        with psycopg.connect(self.direct) as connection:
            asked = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            tables = [str(name) for (name,) in connection.execute(asked).fetchall()]
            for name in tables:
                words = sql.SQL("CREATE TABLE {} AS TABLE {}")
                connection.execute(words.format(sql.Identifier(f"copy_{name}"), sql.Identifier(name)))

        def restore() -> None:
            with psycopg.connect(self.direct) as connection:
                for name in tables:
                    now, kept = sql.Identifier(name), sql.Identifier(f"copy_{name}")
                    connection.execute(sql.SQL("TRUNCATE {}").format(now))
                    connection.execute(sql.SQL("INSERT INTO {} TABLE {}").format(now, kept))

        return restore

    def _connect(self) -> psycopg.Connection[Any]:
        schema, self._schema = self._schema, None  # without the search path, which a gone schema would make useless
        try:
            return psycopg.connect(self.direct, autocommit=True, connect_timeout=10)
        finally:
            self._schema = schema

    def _drop(self, connection: psycopg.Connection[Any]) -> None:
        if self._schema is not None:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self._schema)))
            self._schema = None

    def close(self) -> None:
        self.proxy.close()
        if self.server is not None:
            self.server.__exit__(None, None, None)
            return
        with self._connect() as connection:
            # What the subject had under way when it was killed may still hold the tables; it ends with its connection.
            connection.execute("SET lock_timeout = '30s'")
            self._drop(connection)

    def __enter__(self) -> ScratchDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parts(url: str) -> dict[str, str]:
    try:
        found = {str(k): str(v) for k, v in conninfo_to_dict(url).items() if v is not None}
    except psycopg.Error:
        raise UsageError(
            "the address of the database is not understood; expected postgresql://user:password@host:port/database"
        ) from None
    return {"host": "127.0.0.1", "port": "5432", **found}


class ScratchTable:
    """The sink's table in whichever schema the present run has."""

    def __init__(self, database: ScratchDatabase, table: str) -> None:
        self._database, self._table = database, table
        self.title = f"PostgreSQL table {table}"

    def rows(self) -> list[Out]:
        return PostgresTable(self._database.direct, self._table).rows()

    def empty(self) -> None:
        return None  # its schema is new

    def copy(self) -> Callable[[], None]:
        return self._database.copy()
