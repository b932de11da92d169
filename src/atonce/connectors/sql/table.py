"""Table: an outbox in PostgreSQL or SQLite, read in the order of a unique growing column; replayable and ordered.

Progress is the next id. Ids become visible out of order: an older transaction may commit after a newer one was read,
so a batch is planned to end only where nothing below can still appear.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from atonce.connectors.sql.border import border_at
from atonce.connectors.sql.database import TableDatabase, TableRef, settled_end
from atonce.connectors.sql.databases import database_for, is_postgres, outbox_feed, scratch_server_for, scratch_url
from atonce.connectors.sql.verified import OUTBOX, known, text_columns
from atonce.delivery.progress import BORDERS, Positions
from atonce.errors import UsageError
from atonce.extras import require
from atonce.guarantee import Guarantee, SourceTraits

if TYPE_CHECKING:
    from atonce.connectors.contract import Feed, Ground, InputRecord, ServerKind

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
        if is_postgres(str(self.url)):
            require("psycopg")
            require("adbc_driver_postgresql")
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
            "rows do not change, and are not deleted, until they are published; the row that was published last does "
            "not change in the columns that are read as long as it is there",
        ]
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

    def starting(self, at: str) -> Table:
        return replace(self, start=at)

    def cautions(self, level: Guarantee) -> list[str]:
        """What should be checked and cannot be, one line each."""
        return self._database().cautions()

    def source_ids(self) -> dict[str, str]:
        return {self.table: self._database().condition().identity}

    def borders(self, positions: Positions | None) -> dict[str, str]:
        if not positions or self.table not in positions:
            return {}
        with self._database().view() as view:
            return {self.table: border_at(view, positions[self.table]).text()}

    def bordered(self, borders: Mapping[str, str]) -> dict[str, str]:
        return {"borders": json.dumps(dict(borders), sort_keys=True)}

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        from atonce.connectors.sql.stream import TableSource
        from atonce.spark.versions import register_source

        register_source(spark, TableSource)
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
            return {str(table): int(at) for table, at in found.items() if table != BORDERS}
        except (ValueError, AttributeError, TypeError):
            return None

    def _database(self) -> TableDatabase:
        return database_for(self.ref)

    # Under `atonce verify`

    def scratch_server(self) -> ServerKind | None:
        return scratch_server_for(str(self.url))

    def scratch_source(self, ground: Ground) -> Self:
        url = scratch_url(str(self.url), ground)
        return replace(self, url=url, table=OUTBOX, start="earliest", max_rows=ground.records_per_batch)

    def feed(self, ground: Ground) -> Feed:
        return outbox_feed(self.ref, ground)

    def static(self, spark: Any, schema: Any, records: Sequence[InputRecord]) -> Any:
        from atonce.spark.static_rows import static_rows

        return static_rows(spark, schema, known(self.column, text_columns(self.columns, self.column), records))
