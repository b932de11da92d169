"""Table: an outbox in PostgreSQL or SQLite, read in the order of a unique growing column; replayable and ordered.

Progress is the next id. Ids become visible out of order: an older transaction may commit after a newer one was read
(F29), so a batch is planned to end only where nothing below can still appear.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atonce.connectors.sql.database import TableDatabase, TableRef, database_for, is_postgres, settled_end
from atonce.delivery.progress import Positions
from atonce.errors import UsageError
from atonce.guarantee import SourceTraits

FORMAT = "atonce-table"
MAX_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a SQL table, published once each.

    url      `postgresql://…`, or `sqlite:///path` or simply the path of a SQLite file
    table    `table` or `schema.table`
    column   the unique growing integer column, assigned by the insert itself
    columns  which columns to read; default: all
    start    "earliest", "latest", or the first id to read
    max_rows how many rows one batch may have
    tasks    how many Spark tasks read one batch; rows are in order within each of them
    """

    url: str | Path = field(repr=False)
    table: str
    column: str = "id"
    columns: Sequence[str] | None = None
    start: str | int = "earliest"
    max_rows: int = MAX_ROWS
    tasks: int = 1

    def __post_init__(self) -> None:
        if not str(self.url) or not self.table:
            raise UsageError("Table needs a url and a table")
        if not (isinstance(self.start, int) or self.start in ("earliest", "latest")):
            raise UsageError(f"start {self.start!r} is not one of: earliest, latest, or an id")
        if self.max_rows < 1 or self.tasks < 1:
            raise UsageError(f"max_rows ({self.max_rows}) and tasks ({self.tasks}) must be at least 1")

    @property
    def ref(self) -> TableRef:
        columns = None if self.columns is None else tuple(self.columns)
        return TableRef(url=str(self.url), table=self.table, column=self.column, columns=columns)

    def traits(self) -> SourceTraits:
        needs = [
            f"column {self.column} is assigned by the insert itself (identity, serial, AUTOINCREMENT), not by hand and "
            "not taken from the sequence beforehand",
            "rows do not change, and are not deleted, until they are published",
        ]
        if not is_postgres(str(self.url)):
            needs.append("the table is not made again within its file and filled beyond the position meanwhile")
        return SourceTraits(
            name=f"table {self.table}",
            replayable=True,
            ordered=True,
            why=f"the same ids give the same rows, in the order of {self.column}; a batch ends where nothing below it "
            "can still appear",
            needs=tuple(needs),
        )

    def describe(self) -> str:
        return f"table {self.table} by {self.column} in {self._database().where}"

    def check(self) -> None:
        self._database().check()

    def first_positions(self) -> Positions | None:
        if isinstance(self.start, int):
            return {self.table: self.start}
        database = self._database()
        first, _ = database.bounds()
        return {self.table: settled_end(database, self.table) if self.start == "latest" else min(first, 0)}

    def cautions(self) -> list[str]:
        """What should be checked and cannot be, one line each."""
        return self._database().cautions()

    def source_ids(self) -> dict[str, str]:
        return {self.table: self._database().condition().identity}

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        from atonce.connectors.sql.stream import TableSource

        spark.dataSource.register(TableSource)
        given = {
            # Spark leaves out of plans and logs the values of options that are called a secret.
            "secret.url": str(self.url),
            "table": self.table,
            "column": self.column,
            "maxRows": str(self.max_rows),
            "tasks": str(self.tasks),
            "identity": self.source_ids()[self.table],
            "start": str((start or self.first_positions() or {}).get(self.table, 0)),
        }
        if self.columns is not None:
            given["columns"] = json.dumps(list(self.columns))
        return spark.readStream.format(FORMAT).options(**{**given, **options}).load()

    def positions(self, offsets_json: str) -> Positions | None:
        try:
            found = json.loads(offsets_json)
            return {str(table): int(at) for table, at in found.items()}
        except (ValueError, AttributeError, TypeError):
            return None

    def watched_files(self) -> None:
        return None

    def _database(self) -> TableDatabase:
        return database_for(self.ref)
