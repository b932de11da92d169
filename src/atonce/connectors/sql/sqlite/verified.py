"""SQLite under `atonce verify`: a file of the run's own, filled and read with SQL that the sink and the source share
nothing with."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from atonce.connectors.contract import Feed, InputRecord, Merge, Written
from atonce.connectors.sql.verified import OUTBOX, TAKES, values
from atonce.errors import UnreachableError


@contextmanager
def _connected(path: str | Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            connection.text_factory = _text
            yield connection
    except sqlite3.Error as error:
        raise UnreachableError(f"SQLite refused what verify asked of {path}: {error}") from error


def _text(data: bytes) -> str:
    """SQLite keeps whatever bytes it was given as text."""
    return data.decode(errors="backslashreplace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class SQLiteTable(Written):
    one_writer = True

    def __init__(self, path: str, name: str, *, merge: Merge | None = None, sets_aside: bool = False) -> None:
        self.path, self.name = path, name
        self.title = f"SQLite table {name}"
        self._merge, self.merges, self.sets_aside = merge, merge is not None, sets_aside

    def merge(self) -> Merge | None:
        return self._merge

    def rows(self) -> list[dict[str, Any]]:
        with _connected(self.path) as connection:
            try:
                cursor = connection.execute(f"SELECT * FROM {_quoted(self.name)}")
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def empty(self) -> None:
        with _connected(self.path) as connection:
            try:
                connection.execute(f"DELETE FROM {_quoted(self.name)}")
                connection.commit()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise

    def copy(self) -> Callable[[], None]:
        kept = f"{self.path}.copy"
        with _connected(self.path) as now, _connected(kept) as copy:
            now.backup(copy)

        def restore() -> None:
            with _connected(kept) as copy, _connected(self.path) as now:
                copy.backup(now)

        return restore


class SqliteOutboxFeed(Feed):
    """One row per record: the id and the columns that the pipeline names, all text."""

    takes = TAKES

    def __init__(self, path: Path, id_column: str, columns: Sequence[str]) -> None:
        self._path, self._id, self._columns = path, id_column, columns

    def prepare(self, partitions: int) -> None:
        texts = "".join(f", {_quoted(name)} TEXT" for name in self._columns)
        with _connected(self._path) as connection:
            connection.execute(f"CREATE TABLE {OUTBOX} ({_quoted(self._id)} INTEGER PRIMARY KEY AUTOINCREMENT{texts})")

    def make_again(self, records: Sequence[InputRecord]) -> None:
        with _connected(self._path) as connection, connection:
            connection.execute(f"DROP TABLE {OUTBOX}")
        self.prepare(1)
        self.give(records)

    def give(self, records: Sequence[InputRecord]) -> None:
        columns = ", ".join(map(_quoted, self._columns))
        places = ", ".join("?" for _ in self._columns)
        with _connected(self._path) as connection, connection:
            connection.executemany(
                f"INSERT INTO {OUTBOX} ({columns}) VALUES ({places})",
                [values(record, len(self._columns)) for record in records],
            )
