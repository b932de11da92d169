"""Where the subject's output is, and how all of it is read back: a topic, or a table."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psycopg
from psycopg import sql

from atonce.errors import UsageError
from atonce.verify.audit.identity import Out
from atonce.verify.audit.readers import Seen
from atonce.verify.wire.batches import Record


class Table(Protocol):
    """A table that a subject writes to."""

    title: str

    def rows(self) -> list[Out]: ...

    def empty(self) -> None:
        """No row of a former run is left."""

    def copy(self) -> Callable[[], None]:
        """Keeps everything beside the table too, the ledger above all; calling the result puts all of it back."""


def of_records(topic: str, records: Sequence[Record]) -> list[Out]:
    return [
        Out(r.key, r.value or b"", f"{topic}/{r.partition}@{r.offset}", r.partition, r.offset)
        for r in records
        if not r.control
    ]


def of_seen(topic: str, seen: Sequence[Seen]) -> list[Out]:
    return [
        Out(
            s.record.key,
            s.record.value or b"",
            f"{topic}/{s.record.partition}@{s.record.offset}",
            s.record.partition,
            s.record.offset,
            s.at,
        )
        for s in seen
    ]


def row_out(table: str, number: int, names: Sequence[str], values: Sequence[Any]) -> Out:
    row = json.dumps(dict(zip(names, values, strict=True)), sort_keys=True, default=_plain, ensure_ascii=False)
    return Out(None, row.encode(), f"{table} row {number}")


def _plain(value: Any) -> str:
    return bytes(value).decode(errors="backslashreplace") if isinstance(value, bytes | memoryview) else str(value)


class PostgresTable:
    def __init__(self, url: str, table: str) -> None:
        self.url, self.table = url, table
        self.title = f"PostgreSQL table {table}"

    def _name(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def rows(self) -> list[Out]:
        with psycopg.connect(self.url, connect_timeout=10) as connection:
            try:
                cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(self._name()))
            except psycopg.errors.UndefinedTable:
                return []
            names = [column.name for column in cursor.description or ()]
            return [row_out(self.table, number, names, values) for number, values in enumerate(cursor.fetchall(), 1)]

    def empty(self) -> None:
        with psycopg.connect(self.url, connect_timeout=10) as connection:
            try:
                connection.execute(sql.SQL("TRUNCATE {}").format(self._name()))
            except psycopg.errors.UndefinedTable:
                connection.rollback()

    def copy(self) -> Callable[[], None]:
        raise UsageError("a table of the user's is not copied or put back")


class SQLiteTable:
    def __init__(self, path: str, table: str) -> None:
        self.path, self.table = path, table
        self.title = f"SQLite table {table}"

    def rows(self) -> list[Out]:
        quoted = '"' + self.table.replace('"', '""') + '"'
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            cursor = connection.execute(f"SELECT * FROM {quoted}")
            names = [column[0] for column in cursor.description]
            return [row_out(self.table, number, names, values) for number, values in enumerate(cursor.fetchall(), 1)]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        finally:
            connection.close()

    def empty(self) -> None:
        quoted = '"' + self.table.replace('"', '""') + '"'
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            connection.execute(f"DELETE FROM {quoted}")
            connection.commit()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
        finally:
            connection.close()

    def copy(self) -> Callable[[], None]:
        kept = f"{self.path}.copy"
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as now:
            with contextlib.closing(sqlite3.connect(kept)) as copy:
                now.backup(copy)

        def restore() -> None:
            with contextlib.closing(sqlite3.connect(kept)) as copy:
                with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as now:
                    copy.backup(now)

        return restore


class CustomTable:
    """A sink of the user's own that can say what it has written."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.title = str(sink.describe())

    def rows(self) -> list[Out]:
        return [
            row_out(self.title, number, list(row), list(row.values()))
            for number, row in enumerate(self._sink.written(), 1)
        ]

    def empty(self) -> None:
        return None  # its directory is new

    def copy(self) -> Callable[[], None]:
        raise UsageError("what a sink of the user's own has written is not copied or put back")


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def table_at(address: str) -> Table:
    """`URL#TABLE`: postgresql://… or sqlite:///path."""
    url, found, table = address.rpartition("#")
    if not found or not table:
        raise UsageError(f"--output-table {address!r} is not URL#TABLE, such as postgresql://host/db#orders")
    if is_postgres(url):
        return PostgresTable(url, table)
    if url.startswith("sqlite:"):
        return SQLiteTable(url.removeprefix("sqlite:").removeprefix("//"), table)
    raise UsageError(f"--output-table {address!r}: only postgresql:// and sqlite:/// tables can be audited")
