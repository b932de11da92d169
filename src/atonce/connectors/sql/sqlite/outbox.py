"""A SQLite table as a source. SQLite has one writer at a time, so ids become visible in the order they are assigned.

Without AUTOINCREMENT the ids of deleted rows are given again, below what was read. With it the highest id ever given
stands in `sqlite_sequence`; it is forgotten with the table.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from atonce.connectors.sql.database import (
    DIGEST_BYTES,
    Check,
    Condition,
    ReadColumn,
    TableRef,
    digested,
    quoted,
    wanted_columns,
)
from atonce.errors import RefusedError, RetriableError, UnreachableError, UsageError
from atonce.local.birth import birth_ns

_NOT_SQL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
_RAW = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"
_ROWS_PER_BATCH = 50_000
_KINDS: dict[str, tuple[Any, Any]] = {
    "bigint": (pa.int64(), int),
    "double": (pa.float64(), (int, float)),
    "binary": (pa.binary(), bytes),
    "string": (pa.string(), str),
}
"""Spark's type → Arrow's, and the Python types whose values it holds."""


class SqliteTable:
    def __init__(self, ref: TableRef) -> None:
        self._ref = ref
        self._path = _path(ref.url)
        self._table = quoted(ref.table)
        self._id = quoted(ref.column)

    @property
    def where(self) -> str:
        return self._path

    def check(self) -> None:
        columns = {column.name: column for column in self.columns()}
        declared = columns.get(self._ref.column)
        if declared is not None and declared.spark != "bigint":
            raise UsageError(f"column {self._ref.column} of {self._ref.table} is not an integer column")
        connection = self._connect()
        try:
            info = list(connection.execute(f"PRAGMA table_info({self._table})"))
            key = [row[1] for row in info if row[5]] == [self._ref.column]
            found = connection.execute(
                "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (self._ref.table,)
            ).fetchone()
        finally:
            connection.close()
        if not key or found is None or "AUTOINCREMENT" not in _NOT_SQL.sub(" ", found[0]).upper():
            raise UsageError(
                f"column {self._ref.column} of {self._ref.table} is not INTEGER PRIMARY KEY AUTOINCREMENT, so SQLite "
                "may give ids of deleted rows again, below those that were read. Next: make the table again with it "
                "and copy the rows (ids are kept by INSERT … SELECT)."
            )

    def cautions(self) -> list[str]:
        return []

    def condition(self) -> Condition:
        if not Path(self._path).exists():
            return Condition(identity="", next_id=None)
        with self.view() as view:
            return view.condition()

    @contextlib.contextmanager
    def view(self) -> Iterator[SqliteView]:
        file = _file(self._path)
        connection = self._connect()
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # from here on nothing moves
            if _file(self._path) != file:
                raise RetriableError(f"SQLite file {self._path} was replaced while it was opened")
            yield SqliteView(connection, self._ref, file)
        finally:
            connection.close()

    def columns(self) -> list[ReadColumn]:
        connection = self._connect()
        try:
            info = connection.execute(f"PRAGMA table_info({self._table})").fetchall()
        finally:
            connection.close()
        found = {row[1]: ReadColumn(name=row[1], spark=_spark_type(row[2]), expression=quoted(row[1])) for row in info}
        return wanted_columns(self._ref, found)

    def bounds(self) -> tuple[int, int]:
        first, last = self._one(f"SELECT min({self._id}), max({self._id}) FROM {self._table}")
        return (0, 0) if first is None else (first, last + 1)

    def safe_end(self, start: int, wait_s: float) -> int:
        (last,) = self._one(f"SELECT max({self._id}) FROM {self._table}")
        return start if last is None else max(start, last + 1)

    def read(self, start: int, end: int, check: Check | None = None) -> Iterator[Any]:
        columns = self.columns()
        select = ", ".join(column.expression for column in columns)
        with self.view() as view:
            if check is not None:
                check(view)
            cursor = view.connection.execute(
                f"SELECT {select} FROM {self._table} WHERE {self._id} >= ? AND {self._id} < ? ORDER BY {self._id}",
                (start, end),
            )
            while rows := cursor.fetchmany(_ROWS_PER_BATCH):
                yield pa.RecordBatch.from_arrays(
                    [_array(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)],
                    names=[column.name for column in columns],
                )

    def _one(self, sql: str, *parameters: Any) -> Any:
        connection = self._connect()
        try:
            return connection.execute(sql, parameters).fetchone() or (None,)
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        if not Path(self._path).exists():
            raise UnreachableError(f"SQLite file {self._path} does not exist")
        try:
            return sqlite3.connect(f"{Path(self._path).absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        except sqlite3.Error as error:
            raise UnreachableError(f"SQLite file {self._path} cannot be opened: {error}") from None


class SqliteView:
    """One read transaction."""

    def __init__(self, connection: sqlite3.Connection, ref: TableRef, file: str) -> None:
        self.connection = connection
        self._ref = ref
        self._file = file
        self._table = quoted(ref.table)
        self._id = quoted(ref.column)

    def condition(self) -> Condition:
        """The file stands for the table: SQLite gives neither a name that would tell one from another."""
        if self._one("SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE", self._ref.table) is None:
            return Condition(identity="", next_id=None)
        last = self._one("SELECT seq FROM sqlite_sequence WHERE name = ? COLLATE NOCASE", self._ref.table)
        return Condition(identity=self._file, next_id=1 if last is None else last[0] + 1)

    def last_below(self, position: int) -> int | None:
        found = self._one(f"SELECT max({self._id}) FROM {self._table} WHERE {self._id} < ?", position)
        return None if found is None or found[0] is None else int(found[0])

    def row(self, at: int, columns: Sequence[str] | None) -> dict[str, str] | None:
        present = [row[1] for row in self.connection.execute(f"PRAGMA table_info({self._table})")]
        names = digested(self._ref, present, columns)
        select = ", ".join(["1", *(_RAW.format(quoted(name)) for name in names)])
        found = self._one(f"SELECT {select} FROM {self._table} WHERE {self._id} = ?", at)
        return None if found is None else dict(zip(names, map(_digest, found[1:]), strict=True))

    def moment(self) -> str:
        """Counts up with every change of the schema: no table of the file was dropped or made between two alike."""
        return f"schema {self.connection.execute('PRAGMA schema_version').fetchone()[0]}"

    def is_older(self, at: int, when: str) -> bool:
        return self.moment() == when

    def limited_end(self, start: int, end: int, rows: int) -> int:
        found = self._one(
            f"SELECT {self._id} FROM {self._table} WHERE {self._id} >= ? AND {self._id} < ? "
            f"ORDER BY {self._id} LIMIT 1 OFFSET ?",
            start,
            end,
            rows,
        )
        return end if found is None else int(found[0])

    def _one(self, sql: str, *parameters: Any) -> Any:
        return self.connection.execute(sql, parameters).fetchone()


def _digest(value: Any) -> str:
    written = value if isinstance(value, bytes) else repr(value).encode()
    return hashlib.blake2b(written, digest_size=DIGEST_BYTES).hexdigest()


def _file(path: str) -> str:
    try:
        return f"file {Path(path).stat().st_ino} of {birth_ns(path)}"
    except FileNotFoundError:
        raise UnreachableError(f"SQLite file {path} does not exist") from None


def _path(url: str) -> str:
    """A plain path, or SQLAlchemy's `sqlite:///relative` and `sqlite:////absolute`; three slashes may mean both."""
    if not url.startswith("sqlite:"):
        return url
    path = unquote(url.removeprefix("sqlite:").removeprefix("//").removeprefix("/"))
    return f"/{path}" if not Path(path).exists() and Path(f"/{path}").exists() else path


def _spark_type(declared: str) -> str:
    """SQLite's own rule for what a declared type prefers."""
    said = declared.upper()
    if "INT" in said:
        return "bigint"
    if any(word in said for word in ("CHAR", "CLOB", "TEXT")):
        return "string"
    if any(word in said for word in ("REAL", "FLOA", "DOUB")):
        return "double"
    return "binary" if "BLOB" in said else "string"


def _array(values: tuple[Any, ...], column: ReadColumn) -> Any:
    kind, fits = _KINDS[column.spark]
    # SQLite keeps what does not fit a column's type as it is, and Arrow would cut 1.5 to 1 without a word.
    odd = next((value for value in values if value is not None and not isinstance(value, fits)), None)
    if odd is None:
        return pa.array(values, kind)
    if column.spark != "string":
        raise RefusedError(
            f"column {column.name} holds {odd!r}, which is no {column.spark}, so nothing was read. Next: correct the "
            "row, or name the columns to read."
        )
    # A column without a declared type may hold anything; what is not text is written as text.
    return pa.array([v if v is None or isinstance(v, str) else _text(v) for v in values], pa.string())


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
