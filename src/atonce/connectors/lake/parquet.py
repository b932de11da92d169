"""What a Spark task does for a table of files: its rows into Parquet files whose names no other attempt uses.

A file counts only when the driver commits its name, and the driver hears only of files of attempts that Spark took as
successful. What other attempts wrote is never seen by a reader.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from atonce.connectors.lake.plans import sync_folder
from atonce.errors import InvariantError, UndeliverableRow
from atonce.spark.attempt import taken
from atonce.spark.task import task_ids

RESULT_SCHEMA = "name string, size bigint, row_count bigint, partition_values string"
_ROWS_PER_GROUP = 131_072
_MOST_OPEN = 200
"""Files that a task writes at a time, one per value of the partition columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    name: str
    size: int
    rows: int
    partition_values: dict[str, str | None]


class _File:
    """One Parquet file being written; small batches are gathered to row groups of a good size."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.path = path
        self.rows = 0
        self.bytes = 0
        self._schema = schema
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._stream = path.open("xb")
        self._writer = pq.ParquetWriter(self._stream, schema, compression="snappy")

    def add(self, piece: Any) -> None:
        self._waiting.append(piece)
        self._waiting_rows += piece.num_rows
        self.rows += piece.num_rows
        self.bytes += piece.nbytes
        if self._waiting_rows >= _ROWS_PER_GROUP:
            self._flush()

    def finish(self) -> int:
        """On disk when this returns; its size."""
        self._flush()
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return self.path.stat().st_size

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_rows = [], 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTask:
    """Everything a task needs, shipped with it; the same from batch to batch. Its attempt's id names its files."""

    folder: str
    schema: Any
    """Arrow schema of the rows, partition columns included, as the table has them."""
    required: frozenset[str] = frozenset()
    partition_by: tuple[str, ...] = ()
    file_bytes: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        partition, attempt = task_ids()
        prefix = taken().id
        if not prefix:
            raise InvariantError("this task was not told which attempt it belongs to")
        stored = pa.schema([field for field in self.schema if field.name not in self.partition_by])
        done: list[tuple[str, int, int, str]] = []
        files: OrderedDict[str, _File] = OrderedDict()
        count = 0

        def end(values: str) -> None:
            file = files.pop(values)
            done.append((file.path.name, file.finish(), file.rows, values))

        for batch in batches:
            for values, piece in self._split(self._fitting(batch)):
                file = files.get(values)
                if file is None:
                    if len(files) >= _MOST_OPEN:
                        end(next(iter(files)))
                    file = _File(Path(self.folder) / f"{prefix}-{partition}-{attempt}-{count}.parquet", stored)
                    files[values] = file
                    count += 1
                files.move_to_end(values)
                file.add(piece)
                if file.bytes >= self.file_bytes:
                    end(values)
        for values in list(files):
            end(values)
        if done:
            sync_folder(Path(self.folder))
            names = [field.split()[0] for field in RESULT_SCHEMA.split(", ")]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*done, strict=True)], names=names)

    def _fitting(self, batch: Any) -> Any:
        """The batch with the table's types; a row that does not fit is named by its column."""
        columns = []
        for field, column in zip(self.schema, batch.columns, strict=True):
            if field.name in self.required and column.null_count:
                raise UndeliverableRow(f"column {field.name} is null, and the table does not allow null there")
            try:
                column.validate(full=True)
                columns.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowInvalid as error:
                raise UndeliverableRow(f"column {field.name} has a value that cannot be stored: {error}") from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _split(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """(partition values as JSON, their rows without the partition columns)."""
        if not self.partition_by or not batch.num_rows:
            if batch.num_rows:
                yield "{}", batch
            return
        kept = [field.name for field in self.schema if field.name not in self.partition_by]
        table = pa.Table.from_batches([batch])
        for found in table.select(list(self.partition_by)).group_by(list(self.partition_by)).aggregate([]).to_pylist():
            mask = None
            for name, value in found.items():
                same = pc.is_null(batch[name]) if value is None else pc.fill_null(pc.equal(batch[name], value), False)
                mask = same if mask is None else pc.and_(mask, same)
            values = {name: _partition_value(name, value) for name, value in found.items()}
            yield json.dumps(values, sort_keys=True), batch.filter(mask).select(kept)


def _partition_value(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if value == "":
        raise UndeliverableRow(f"column {name} is empty text: as a partition's value it would be read as null")
    return str(value).lower() if isinstance(value, bool) else str(value)
