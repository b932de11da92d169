"""What a Spark task does for a table of files: its rows into Parquet files whose names no other attempt uses.

A file counts only when the driver commits its name, and the driver hears only of files of attempts that Spark took as
successful. What other attempts wrote is never seen by a reader.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from atonce.connectors.lake.storage import Storage
from atonce.delivery.letters import ORIGIN
from atonce.errors import InvariantError, UndeliverableRow
from atonce.spark.attempt import taken
from atonce.spark.siblings import Siblings
from atonce.spark.task import task_ids

RESULT_SCHEMA = "name string, size bigint, row_count bigint, partition_values string, dead string"
_ROWS_PER_GROUP = 131_072
_MOST_OPEN = 200
"""Files that a task writes at a time, one per value of the partition columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    name: str
    size: int
    rows: int
    partition_values: dict[str, Any]


class _File:
    """One Parquet file being written; small batches are gathered to row groups of a good size."""

    def __init__(self, name: str, storage: Storage, schema: Any, compression: str) -> None:
        self.name = name
        self.rows = 0
        self.bytes = 0
        self._schema = schema
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._stream = storage.create(name)
        self._writer = pq.ParquetWriter(self._stream, schema, compression=compression)

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
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_rows = [], 0


class Files:
    """The rows of one attempt in files, one or more for each value of what partitions the table."""

    def __init__(self, task: ParquetTask, stem: str) -> None:
        self._task = task
        self._stem = stem
        self._schema = pa.schema([field for field in task.schema if field.name not in task.partition_by])
        self._open: OrderedDict[str, _File] = OrderedDict()
        self._done: list[WrittenFile] = []
        self._count = 0

    def add(self, batch: Any) -> None:
        for values, piece in self._task.split(batch):
            file = self._open.get(values)
            if file is None:
                if len(self._open) >= _MOST_OPEN:
                    self._end(next(iter(self._open)))
                name = f"{self._stem}-{self._count}.parquet"
                file = self._open[values] = _File(name, self._task.storage, self._schema, self._task.compression)
                self._count += 1
            self._open.move_to_end(values)
            file.add(piece)
            if file.bytes >= self._task.file_bytes:
                self._end(values)

    def finish(self) -> list[WrittenFile]:
        """On disk, names included, when this returns."""
        for values in list(self._open):
            self._end(values)
        if self._done:
            self._task.storage.keep_names()
        return self._done

    def _end(self, values: str) -> None:
        file = self._open.pop(values)
        size = file.finish()
        self._done.append(WrittenFile(name=file.name, size=size, rows=file.rows, partition_values=json.loads(values)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTask:
    """Everything a task needs, shipped with it; the same from batch to batch. Its attempt's id names its files."""

    storage: Storage
    schema: Any
    """Arrow schema of the rows, partition columns included, as the table has them."""
    required: frozenset[str] = frozenset()
    partition_by: tuple[str, ...] = ()
    """Columns whose values the table's log has as text, and the files have not."""
    derive: Callable[[Any], dict[str, Any]] | None = None
    """Instead: what a table that keeps its columns in the files is partitioned by, from a batch of rows."""
    compression: str = "snappy"
    file_bytes: int
    carried: tuple[str, ...] = ()
    """Columns behind those of the table that only say where a row comes from."""
    dead_letter: bool = False
    """Rows that cannot be stored are told of, and left out; else the first of them ends the task."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        partition, attempt = task_ids()
        prefix = taken().id
        if not prefix:
            raise InvariantError("this task was not told which attempt it belongs to")
        told: list[str] = []
        siblings = Siblings([*self.schema.names, *self.carried])
        files = Files(self, f"{prefix}-{partition}-{attempt}")
        for batch in batches:
            rows, dead = self._without_bad(siblings.numbered(batch))
            if dead:
                told.append(json.dumps(dead))
            files.add(self.fitting(rows))
        done: list[tuple[Any, ...]] = [(None, 0, 0, "{}", dead) for dead in told]
        for file in files.finish():
            done.append((file.name, file.size, file.rows, json.dumps(file.partition_values, sort_keys=True), None))
        if done:
            names = [field.split()[0] for field in RESULT_SCHEMA.split(", ")]
            kinds = [pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string()]
            columns = zip(zip(*done, strict=True), kinds, strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in columns], names=names)

    def _without_bad(self, batch: Any) -> tuple[Any, list[dict[str, Any]]]:
        """The rows that can be stored, and what is told of the others."""
        count = len(self.schema)
        plain = pa.RecordBatch.from_arrays(batch.columns[:count], names=self.schema.names)
        if not self.dead_letter:
            return plain, []
        bad: dict[int, str] = {}
        for field, column in zip(self.schema, plain.columns, strict=True):
            for row in _unfit(column, field, field.name in self.required):
                bad.setdefault(
                    row, f"column {field.name} has a value that the table cannot hold, or null where it must not"
                )
            if field.name in self.partition_by and pa.types.is_string(column.type):
                empty = pc.fill_null(pc.equal(column, ""), False).to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(empty).tolist():
                    bad.setdefault(row, f"column {field.name} is empty text: as a partition's value it would be null")
        if not bad:
            return plain, []
        origin = batch.columns[count:]
        dead = [_told(plain, origin, row, reason) for row, reason in sorted(bad.items())]
        keep = np.ones(plain.num_rows, bool)
        keep[list(bad)] = False
        return plain.filter(pa.array(keep)), dead

    def fitting(self, batch: Any) -> Any:
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

    def split(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """(partition values as JSON, their rows without the partition columns)."""
        if not batch.num_rows:
            return
        by = {name: batch[name] for name in self.partition_by} if self.derive is None else self.derive(batch)
        if not by:
            yield "{}", batch
            return
        kept = [field.name for field in self.schema if field.name not in self.partition_by]
        for found in pa.table(by).group_by(list(by)).aggregate([]).to_pylist():
            mask = None
            for name, value in found.items():
                same = pc.is_null(by[name]) if value is None else pc.fill_null(pc.equal(by[name], value), False)
                mask = same if mask is None else pc.and_(mask, same)
            if self.derive is None:
                found = {name: _partition_value(name, value) for name, value in found.items()}
            yield json.dumps(found, sort_keys=True), batch.filter(mask).select(kept)


def _unfit(column: Any, field: Any, required: bool) -> Iterator[int]:
    """Rows that cannot be stored as this field; the whole column is looked at first."""
    if required and column.null_count:
        yield from np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)).tolist()
    if not _fits(column, field):
        yield from (row for row in range(len(column)) if not _fits(column.slice(row, 1), field))


def _fits(column: Any, field: Any) -> bool:
    try:
        # Validated as an array of its own: a slice is validated with all that it was cut from.
        pa.concat_arrays([column]).validate(full=True)
        if column.type != field.type:
            column.cast(field.type)
    except pa.ArrowInvalid:
        return False
    return True


def _told(plain: Any, origin: Sequence[Any], row: int, reason: str) -> dict[str, Any]:
    place = [column[row].as_py() for column in origin] or [None] * len(ORIGIN)
    told = dict(zip(("topic", "partition", "offset", "index"), place, strict=True))
    raw = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in plain.columns]
    cells = {name: column[row].as_py() for name, column in zip(plain.schema.names, raw, strict=True)}
    shown = {n: v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else v for n, v in cells.items()}
    return {**told, "reason": reason, "row": json.dumps(shown, default=str)}


def _partition_value(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if value == "":
        raise UndeliverableRow(f"column {name} is empty text: as a partition's value it would be read as null")
    return str(value).lower() if isinstance(value, bool) else str(value)
