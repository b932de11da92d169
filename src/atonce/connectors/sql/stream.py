"""`format("atonce-table")`: a SQL table as a Spark stream, in the order of its growing column, within limits."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from atonce.connectors.sql.border import Border, Known, border_at
from atonce.connectors.sql.database import TableRef, TableView, settled_end
from atonce.connectors.sql.databases import database_for
from atonce.connectors.sql.postgres.outbox import to_schema
from atonce.delivery.progress import BORDERS
from atonce.errors import AtOnceError, RefusedError, RetriableError, UnreachableError, UsageError
from atonce.extras import any_of
from atonce.spark.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    ReadLimit,
    ReadMaxRows,
    StructType,
    SupportsTriggerAvailableNow,
    limited,
)
from atonce.spark.versions import arrow_schema

Offsets = dict[str, Any]
"""{"outbox":12}, and {"@borders":{"outbox":"…"}} beside it: what stood before that position when it was planned."""
_WAIT_S = 1.0
"""How long planning waits for writers that are still open; what they hold back comes with a later batch."""


class TableSource(DataSource):
    """The entry point that Spark knows."""

    @classmethod
    def name(cls) -> str:
        return "atonce-table"

    def schema(self) -> str:
        found = database_for(_ref(self.options)).columns()
        return ", ".join(f"`{column.name.replace('`', '``')}` {column.spark}" for column in found)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return limited(TableReader(dict(self.options), schema), self.options)


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._ref = _ref(options)
        self._first = int(options.get("start", "0"))
        self._max_rows = int(options.get("maxrows", options.get("maxRows", "500000")))
        self._tasks = int(options.get("tasks", "1"))
        self._schema = schema
        self._database = database_for(self._ref)
        self._known = Known(ref=self._ref, identity=options.get("identity", ""), first=self._first)
        self._recorded = json.loads(options.get("borders", "{}")).get(self._ref.table)
        """The ledger's border, for a position that brings none of its own."""
        self._target: int | None = None

    def initialOffset(self) -> Offsets:
        return {self._ref.table: self._first}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        with passing_trouble(self._ref.table):
            return self._latest(start, limit)

    def _latest(self, start: Offsets, limit: ReadLimit) -> Offsets:
        begin, before = int(start[self._ref.table]), self._border(start)
        with self._database.view() as view:
            self._known.check(view, begin, before)
        end = self._database.safe_end(begin, _WAIT_S) if self._target is None else max(begin, self._target)
        if end <= begin:
            return start  # as it was given: Spark compares offsets as text
        # Finding the end may have taken a while; what it is planned from is checked in the same snapshot.
        with self._database.view() as view:
            self._known.check(view, begin, before)
            if isinstance(limit, ReadMaxRows):
                end = view.limited_end(begin, end, limit.max_rows)
            return {self._ref.table: end, BORDERS: {self._ref.table: border_at(view, end).text()}}

    def _border(self, offsets: Offsets) -> Border | None:
        """What stood before this position; None when it was kept before borders were."""
        text = offsets.get(BORDERS, {}).get(self._ref.table, self._recorded)
        found = Border.parse(text) if text else None
        return found if found is not None and found.position == int(offsets[self._ref.table]) else None

    def prepareForTriggerAvailableNow(self) -> None:
        with passing_trouble(self._ref.table):
            self._target = settled_end(self._database, self._ref.table)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        first, last = int(start[self._ref.table]), int(end[self._ref.table])
        tasks = max(1, min(self._tasks, last - first))
        cuts = [first + (last - first) * part // tasks for part in range(tasks + 1)]
        borders = (first, self._border(start), self._border(end))
        return [InputPartition((low, high, *borders)) for low, high in itertools.pairwise(cuts) if high > low]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        low, high, begin, before, last = partition.value
        schema = arrow_schema(self._schema)

        def check(view: TableView) -> None:
            self._known.check(view, begin, before, last)

        with passing_trouble(self._ref.table):
            for batch in self._database.read(low, high, check):
                yield to_schema(batch, schema)


@contextlib.contextmanager
def passing_trouble(table: str) -> Iterator[None]:
    """A database that answered before may again: a restart, a lock that is held, a connection that broke."""
    try:
        yield
    except AtOnceError as error:
        if isinstance(error, UnreachableError):
            raise RetriableError(str(error)) from None
        raise
    except any_of(sqlite3.OperationalError, "psycopg.OperationalError") as error:
        raise RetriableError(f"table {table} cannot be read now: {str(error).strip()}") from None
    except any_of(sqlite3.Error, "psycopg.Error") as error:
        raise RefusedError(
            f"table {table} cannot be read: {str(error).strip()}. Nothing of it was passed over. Next: correct it, "
            "and run the pipeline again."
        ) from None


def _ref(options: Any) -> TableRef:
    url = options.get("secret.url") or options.get("url")
    table = options.get("table") or options.get("dbtable")
    if not url or not table:
        raise UsageError('format("atonce-table") needs the options url and table')
    columns = options.get("columns")
    names = None if columns is None else tuple(json.loads(columns))
    return TableRef(url=url, table=table, column=options.get("column") or "id", columns=names)
