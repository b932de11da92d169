"""Dead letters beside an Iceberg table: a table of their own. They are few, so that a change writes them all."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from atonce.connectors.lake.iceberg.catalog import found, opened
from atonce.connectors.lake.iceberg.columns import with_columns
from atonce.connectors.lake.letters import KEY, SCHEMA, kept_of, row_of
from atonce.connectors.lake.table import PutBy
from atonce.delivery.letters import Kept, Letter
from atonce.errors import RetriableError

_TRIES = 20
_NO_RETRIES = {"commit.retry.num-retries": "0"}
"""The library's retries would write over what somebody else has changed since we looked."""
_SETTLED = ("reason", "row_json", "attempts", "replayed_at")

Row = dict[str, Any]


class IcebergLetters:
    def __init__(self, catalog: Mapping[str, Any], name: str, output: str) -> None:
        self._catalog = catalog
        self._name = name
        self._output = output

    def describe(self) -> str:
        return f"Iceberg table {self._name}"

    def add(self, letters: Sequence[Letter], pipeline: str, batch_id: int, by: PutBy) -> None:
        now = datetime.now(UTC)
        fresh = [Kept(letter=each, batch_id=batch_id, put_aside_at=now) for each in letters]
        ours = {**asdict(by), "confirmed": False}
        rows = [{**row_of(each, pipeline, self._output), **ours} for each in fresh]

        def put(known: dict[tuple[Any, ...], Row]) -> None:
            # One that waits stays as it is; one that was delivered after all, or taken back, waits again.
            for row in rows:
                kept = known.get(_place(row))
                if kept is None:
                    known[_place(row)] = row
                elif (kept["replayed_at"] is not None or not kept["confirmed"]) and _older(kept, row):
                    known[_place(row)] = {**row, "attempts": kept["attempts"] + 1}

        self._change(pipeline, put)

    def confirm(self, pipeline: str, instance: str, sequence: int) -> None:
        def put(known: dict[tuple[Any, ...], Row]) -> None:
            for row in self._ours(known):
                if not row["confirmed"] and (row["instance"], row["sequence"]) == (instance, sequence):
                    row["confirmed"] = True

        self._change(pipeline, put)

    def drop(self, pipeline: str, owner: str, below: int) -> None:
        now = datetime.now(UTC)

        def put(known: dict[tuple[Any, ...], Row]) -> None:
            for row in self._ours(known):
                if not row["confirmed"] and row["owner"] == owner and row["number"] < below:
                    row.update(confirmed=True, replayed_at=now)

        self._change(pipeline, put)

    def settle(self, kept: Sequence[Kept], pipeline: str, owner: str = "", below: int = 0) -> None:
        rows = [{**row_of(each, pipeline, self._output), "owner": owner, "number": below} for each in kept]

        def put(known: dict[tuple[Any, ...], Row]) -> None:
            for row in rows:
                there = known.get(_place(row))
                if there is not None and _older(there, row):
                    there.update({name: row[name] for name in _SETTLED})

        if rows:
            self._change(pipeline, put)

    def kept(self, pipeline: str) -> list[Kept]:
        table = found(self._catalog, self._name)
        if table is None:
            return []
        rows = [row for row in self._read(table, pipeline) if row["output"] == self._output and row["confirmed"]]
        return sorted((kept_of(row) for row in rows), key=lambda kept: (kept.letter.place, kept.letter.index))

    def _ours(self, known: dict[tuple[Any, ...], Row]) -> list[Row]:
        return [row for row in known.values() if row["output"] == self._output]

    def _change(self, pipeline: str, put: Callable[[dict[tuple[Any, ...], Row]], None]) -> None:
        """The letters of this pipeline as `put` leaves them, unless they are so already; on what nobody has moved."""
        try:
            for left in reversed(range(_TRIES)):
                table = found(self._catalog, self._name)
                before = [] if table is None else self._read(table, pipeline)
                known = {_place(row): dict(row) for row in before}
                put(known)
                if list(known.values()) == before:
                    return
                if table is None:
                    self._make()
                    continue
                rows = pa.Table.from_pylist(list(known.values()), schema=SCHEMA)
                try:
                    self._overwrite(table, rows, pipeline)
                    return
                except CommitFailedException:
                    if not left:
                        raise
        except Exception as error:
            raise RetriableError(f"dead letters cannot be written to {self.describe()}: {error}") from error

    def _read(self, table: Table, pipeline: str) -> list[Row]:
        rows: list[Row] = table.scan(row_filter=EqualTo("pipeline", pipeline)).to_arrow().to_pylist()
        return rows

    def _overwrite(self, table: Table, rows: Any, pipeline: str) -> None:
        """On the table as it was read: a commit of somebody else in between refuses it."""
        table.metadata.properties.update(_NO_RETRIES)  # in memory: also for a table that is the user's own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of there being nothing to delete
            table.overwrite(rows, overwrite_filter=EqualTo("pipeline", pipeline))

    def _make(self) -> None:
        catalog = opened(self._catalog)
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(tuple(self._name.split(".")[:-1]))
        with contextlib.suppress(TableAlreadyExistsError):
            catalog.create_table(self._name, with_columns(Schema(), 0, list(SCHEMA)))


def _older(kept: Row, new: Row) -> bool:
    return bool(kept["owner"] != new["owner"] or kept["number"] < new["number"])


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)
