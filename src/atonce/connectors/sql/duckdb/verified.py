"""DuckDB under `atonce verify`: a file of the run's own, read with SQL that the sink shares nothing with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from atonce.backoff import Backoff
from atonce.connectors.contract import Merge, Written
from atonce.errors import UnreachableError

_WAIT_S = 10.0


@contextmanager
def _connected(path: str, *, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """The file as any other program opens it: as soon as nobody writes."""
    backoff = Backoff(0.01, 0.2, _WAIT_S)
    try:
        while True:
            try:
                connection = duckdb.connect(path, read_only=read_only)
                break
            except (duckdb.IOException, duckdb.ConnectionException):
                if backoff.over:
                    raise
                backoff.wait()
        with connection:
            yield connection
    except duckdb.Error as error:
        raise UnreachableError(f"DuckDB refused what verify asked of {path}: {error}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


class DuckTable(Written):
    one_writer = True

    def __init__(self, path: str, name: str, *, merge: Merge | None = None) -> None:
        self.path, self.name = path, name
        self.title = f"DuckDB table {name}"
        self._merge, self.merges = merge, merge is not None

    def merge(self) -> Merge | None:
        return self._merge

    def rows(self) -> list[dict[str, Any]]:
        if not Path(self.path).exists():
            return []
        with _connected(self.path) as connection:
            try:
                cursor = connection.execute(f"SELECT * FROM {_quoted(self.name)}")
            except duckdb.CatalogException:
                return []
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def empty(self) -> None:
        if Path(self.path).exists():
            with _connected(self.path, read_only=False) as connection:
                try:
                    connection.execute(f"DELETE FROM {_quoted(self.name)}")
                except duckdb.CatalogException:
                    return

    def copy(self) -> Callable[[], None]:
        kept = f"{self.path}.copy"
        Path(kept).unlink(missing_ok=True)
        with _connected(self.path) as connection:
            connection.execute(f"ATTACH {_text(kept)} AS kept")
            connection.execute(f"COPY FROM DATABASE {_quoted(_catalog(connection))} TO kept")

        def restore() -> None:
            shutil.copy(kept, f"{self.path}.new")
            # What was logged after the copy goes with the file it belongs to.
            Path(f"{self.path}.wal").unlink(missing_ok=True)
            Path(f"{self.path}.new").replace(self.path)

        return restore


def _catalog(connection: duckdb.DuckDBPyConnection) -> str:
    found = connection.execute("SELECT current_database()").fetchone()
    return str(found[0]) if found else ""
