"""The database of a run: verify's own PostgreSQL, or the user's, always in a scratch schema that is made and removed.

A proxy in front of it sees every COMMIT. A database that verify did not start is never stopped, and nothing outside the
scratch schema is written to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from atonce.connectors.contract import Ground, StoppableServer
from atonce.connectors.sql.postgres.verified.connection import connected
from atonce.connectors.sql.postgres.verified.proxy import CommitRule, PostgresProxy
from atonce.errors import UsageError
from atonce.local.servers.postgres import PostgresServer

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
        self._like = like
        self._schema: str | None = None
        self._own = None if given is not None else PostgresServer()
        if self._own is not None:
            self._own.__enter__()
        self._parts = _parts(given or (self._own.url if self._own is not None else ""))
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
    def server(self) -> StoppableServer | None:
        return self._own

    def cut_at_commit(self, *, nth: int, after: bool) -> CommitRule:
        return self.proxy.cut_at_commit(nth=nth, after=after)

    @property
    def direct(self) -> str:
        return self._url(self._parts["host"], int(self._parts["port"]), {}, self._schema)

    @property
    def _outside(self) -> str:
        """Without the search path, which a gone schema would make useless."""
        return self._url(self._parts["host"], int(self._parts["port"]), {}, None)

    @property
    def url(self) -> str:
        return self._url("127.0.0.1", self.proxy.port, {"sslmode": "disable"}, self._schema)

    def _url(self, host: str, port: int, more: dict[str, str], schema: str | None) -> str:
        parts = self._parts
        user = quote(parts.get("user", ""), safe="")
        if parts.get("password"):
            user += ":" + quote(parts["password"], safe="")
        rest = {k: v for k, v in parts.items() if k not in ("user", "password", "host", "port", "dbname", "options")}
        if host.startswith("/"):
            rest["host"], host = host, ""
        options = parts.get("options", "")
        if schema is not None:
            options = f"{options} -csearch_path={schema}".strip()
        query = {**rest, **more, **({"options": options} if options else {})}
        where = f"{user}@" * bool(user) + f"{host}:{port}"
        return f"postgresql://{where}/{quote(parts.get('dbname', ''), safe='')}?{urlencode(query, quote_via=quote)}"

    def fresh(self, run: str) -> None:
        """The next run's schema; the former one goes."""
        self.proxy.clear()
        name = (PREFIX + secrets.token_hex(3) + "_" + "".join(c if c.isalnum() else "_" for c in run))[:60]
        with connected(self._outside, autocommit=True) as connection:
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
        with connected(self.direct) as connection:
            asked = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            tables = [str(name) for (name,) in connection.execute(asked).fetchall()]
            for name in tables:
                words = sql.SQL("CREATE TABLE {} AS TABLE {}")
                connection.execute(words.format(sql.Identifier(f"copy_{name}"), sql.Identifier(name)))

        def restore() -> None:
            with connected(self.direct) as connection:
                for name in tables:
                    now, kept = sql.Identifier(name), sql.Identifier(f"copy_{name}")
                    connection.execute(sql.SQL("TRUNCATE {}").format(now))
                    connection.execute(sql.SQL("INSERT INTO {} TABLE {}").format(now, kept))

        return restore

    def _drop(self, connection: psycopg.Connection[Any]) -> None:
        if self._schema is not None:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self._schema)))
            self._schema = None

    def close(self) -> None:
        self.proxy.close()
        if self._own is not None:
            self._own.__exit__(None, None, None)
            return
        with connected(self._outside, autocommit=True) as connection:
            # What the subject had under way when it was killed may still hold the tables; it ends with its connection.
            connection.execute("SET lock_timeout = '30s'")
            self._drop(connection)


def scratch_database(ground: Ground) -> ScratchDatabase:
    if not isinstance(ground.server, ScratchDatabase):
        raise UsageError("PostgreSQL is verified on a scratch schema, and none was prepared")
    return ground.server


def _parts(url: str) -> dict[str, str]:
    try:
        found = {str(k): str(v) for k, v in conninfo_to_dict(url).items() if v is not None}
    except psycopg.Error:
        raise UsageError(
            "the address of the database is not understood; expected postgresql://user:password@host:port/database"
        ) from None
    return {"host": "127.0.0.1", "port": "5432", **found}
