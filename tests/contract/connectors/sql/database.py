"""The databases under test, behind one face: what sinks they offer, and what their tables hold."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from atonce.connectors.sql.duckdb.sink import DuckDB
from atonce.connectors.sql.postgres.sink import Postgres
from atonce.connectors.sql.sqlite.sink import SQLite
from atonce.delivery.contract import Batch, Identity, unwatched
from atonce.delivery.events import Event
from atonce.delivery.progress import Plan, Progress
from atonce.guarantee import Guarantee

_AT = re.compile(r'(?<!")\bat\b(?!")')
"""A word of DuckDB's own, as a column's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    kind: str
    where: str

    def sink(self, table: str, **options: Any) -> Any:
        options.setdefault("create", True)
        if self.kind == "duckdb":
            return DuckDB(self.where, table, **options)
        return (
            Postgres(self.where, table, **options) if self.kind == "postgres" else SQLite(self.where, table, **options)
        )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        if self.kind == "postgres":
            with psycopg.connect(self.where, autocommit=True) as connection:
                return connection.execute(sql.encode()).fetchall()
        if self.kind == "duckdb":
            with duckdb.connect(self.where) as connection:
                return connection.execute(_AT.sub('"at"', sql)).fetchall()
        connection = sqlite3.connect(self.where, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def run(self, sql: str) -> None:
        if self.kind == "postgres":
            with psycopg.connect(self.where, autocommit=True) as connection:
                connection.execute(sql.encode())
            return
        self.rows(sql)

    def has(self, table: str) -> bool:
        known = {
            "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
            "duckdb": "SELECT table_name FROM duckdb_tables()",
        }
        return (table,) in self.rows(known[self.kind])

    def columns(self, table: str) -> list[str]:
        listed = (
            f"SELECT name FROM pragma_table_info('{table}')"
            if self.kind == "sqlite"
            else f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'"
        )
        return [row[0] for row in self.rows(listed)]

    def ids(self, table: str) -> list[int]:
        return sorted(row[0] for row in self.rows(f"SELECT id FROM {table}")) if self.has(table) else []

    def ledger(self, name: str) -> tuple[int, str | None]:
        found = self.rows(f"SELECT batch_id, positions FROM atonce_ledger WHERE name = '{name}'")
        return found[0] if found else (-1, None)


def sqlite_at(folder: Path) -> Database:
    return Database(kind="sqlite", where=str(folder / "out.db"))


def duckdb_at(folder: Path) -> Database:
    return Database(kind="duckdb", where=str(folder / "out.duckdb"))


def identity(name: str, level: Guarantee = Guarantee.EFFECTIVELY_ONCE, instance: str | None = None) -> Identity:
    return Identity(name=name, instance=instance or uuid.uuid4().hex, guarantee=level)


def plan(number: int, *, query: str = "q", ordered: bool = True) -> Plan:
    start, end = ({"t/0": number * 10}, {"t/0": number * 10 + 10}) if ordered else (None, None)
    return Plan(query_id=query, batch_id=number, start=start, end=end)


def batch(df: Any, number: int, watch: Callable[..., None] = unwatched, *, ordered: bool = True) -> Batch:
    return Batch(df=df, plan=plan(number, ordered=ordered), watch=watch)


def progress(who: Identity, number: int, sequence: int | None = None) -> Progress:
    return Progress(
        instance=who.instance,
        query_id="q",
        batch_id=number,
        positions={"t/0": number * 10 + 10},
        sequence=number + 1 if sequence is None else sequence,
    )


class Crash(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


def crash_at(moment: str) -> Callable[..., None]:
    def watch(event: Event) -> None:
        if event.step.value == moment:
            raise Crash(moment)

    return watch
