"""A SQLite table as a source. SQLite has one writer at a time, so ids become visible in the order they are assigned.

Without AUTOINCREMENT the ids of deleted rows are given again, below what was read. With it the highest id ever given
stands in `sqlite_sequence`; it is forgotten with the table.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from atonce.connectors.sql.database import Condition, ReadColumn, TableRef, quoted, wanted_columns
from atonce.errors import RefusedError, UnreachableError, UsageError
from atonce.local.birth import birth_ns

_NOT_SQL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
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
        """The file stands for the table: SQLite gives neither a name that would tell one from another."""
        if not Path(self._path).exists():
            return Condition(identity="", next_id=None)
        inode, born = Path(self._path).stat().st_ino, birth_ns(self._path)
        (last,) = self._one("SELECT seq FROM sqlite_sequence WHERE name = ? COLLATE NOCASE", self._ref.table)
        return Condition(identity=f"file {inode} of {born}", next_id=1 if last is None else last + 1)

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

    def limited_end(self, start: int, end: int, rows: int) -> int:
        found = self._one(
            f"SELECT {self._id} FROM {self._table} WHERE {self._id} >= ? AND {self._id} < ? "
            f"ORDER BY {self._id} LIMIT 1 OFFSET ?",
            start,
            end,
            rows,
        )
        return end if found[0] is None else int(found[0])

    def read(self, start: int, end: int) -> Iterator[Any]:
        columns = self.columns()
        select = ", ".join(column.expression for column in columns)
        connection = self._connect()
        try:
            cursor = connection.execute(
                f"SELECT {select} FROM {self._table} WHERE {self._id} >= ? AND {self._id} < ? ORDER BY {self._id}",
                (start, end),
            )
            while rows := cursor.fetchmany(_ROWS_PER_BATCH):
                yield pa.RecordBatch.from_arrays(
                    [_array(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)],
                    names=[column.name for column in columns],
                )
        finally:
            connection.close()

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
