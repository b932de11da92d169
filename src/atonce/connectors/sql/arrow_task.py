"""What a Spark task does for a database sink that takes Arrow: check rows, and stream them to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from atonce.connectors.sql.rows_in import DATA, Feed
from atonce.connectors.sql.task import ROW_COLUMN, TASK_COLUMN, Deletes, set_aside, stream

ROWS_PER_FRAME = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTask:
    """Everything a task needs, shipped with it. Each frame is one Arrow stream, with its rows numbered."""

    secret: str = field(repr=False)
    names: tuple[str, ...]
    required: frozenset[str]
    dead_letter: bool
    ordered: frozenset[str] = frozenset()
    """Columns that say how new a row is: their values must have the order of what they stand for."""
    deletes: Deletes | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return stream(self.secret, batches, ROWS_PER_FRAME, self.send, self.names)

    def send(self, feed: Feed, piece: Any, partition: int, first_row: int) -> None:
        """Check one piece of a record batch, number its rows, and put it on its way."""
        whole = piece = piece.rename_columns(list(self.names))
        numbers = np.arange(first_row, first_row + piece.num_rows, dtype=np.int64)
        if self.deletes is not None:
            piece = pa.RecordBatch.from_arrays(self.deletes.bare(piece.columns, self.names)[0], names=list(self.names))
        bad = self._find_bad(piece)
        if bad:
            keep = set_aside(feed, whole, self.names, bad, dead_letter=self.dead_letter)
            piece, numbers = piece.filter(pa.array(keep)), numbers[keep]
        if not len(numbers):
            return
        task = pa.array(np.full(len(numbers), partition, np.int64))
        whole = pa.RecordBatch.from_arrays(
            [*piece.columns, task, pa.array(numbers)], names=[*self.names, TASK_COLUMN, ROW_COLUMN]
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, whole.schema) as writer:
            writer.write_batch(whole)
        feed.send(DATA, memoryview(sink.getvalue()), len(numbers))

    def _find_bad(self, piece: Any) -> dict[int, str]:
        bad: dict[int, str] = {}
        for name, array in zip(self.names, piece.columns, strict=True):
            if name in self.required and array.null_count:
                for row in np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False)).tolist():
                    bad.setdefault(row, f"column {name} is null, and null is not allowed there")
            if name in self.ordered:
                for row, reason in _without_order(array):
                    bad.setdefault(row, f"column {name} {reason}")
            if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
                for row in _bad_text(array):
                    bad.setdefault(row, f"column {name} is not valid UTF-8")
        return bad


def _without_order(array: Any) -> Iterator[tuple[int, str]]:
    """Rows whose value SQLite would order otherwise than Spark and PostgreSQL do."""
    if pa.types.is_floating(array.type):
        for row in np.flatnonzero(pc.fill_null(pc.is_nan(array), False).to_numpy(zero_copy_only=False)).tolist():
            yield row, "is NaN, which SQLite keeps as null: it has no order there"
    elif pa.types.is_temporal(array.type):
        year = pc.fill_null(pc.year(array), 1)
        odd = pc.or_(pc.less(year, 0), pc.greater(year, 9999))
        for row in np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist():
            yield row, "lies outside the years 0 to 9999, within which times have an order as SQLite keeps them"


def _bad_text(array: Any) -> list[int]:
    """Rows whose bytes are not UTF-8: Spark's strings are not checked when they are cast from binary."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return [row for row, value in enumerate(array.cast(pa.binary()).to_pylist()) if not _is_text(value)]
    return []


def _is_text(value: bytes | None) -> bool:
    try:
        if value is not None:
            value.decode()
    except UnicodeDecodeError:
        return False
    return True
