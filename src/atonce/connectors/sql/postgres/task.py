"""What a Spark task does for the PostgreSQL sink: check rows, encode them for COPY, stream them to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from atonce.connectors.sql.postgres.copy import encode, string_buffers, valid_rows
from atonce.connectors.sql.postgres.kernels import BAD_UTF8, NUL_BYTE, TOO_LONG, check_text, hex_to_uuid
from atonce.connectors.sql.postgres.types import Column
from atonce.connectors.sql.rows_in import DATA, Feed
from atonce.connectors.sql.task import ROW_COLUMN, TASK_COLUMN, Deletes, set_aside, stream

ROWS_PER_FRAME = 8_192
"""Small enough that the encoder's scattered writes stay in the processor's cache."""

NUMBERING = (
    Column(name=TASK_COLUMN, spark="bigint", wire="int8", sql="bigint"),
    Column(name=ROW_COLUMN, spark="bigint", wire="int8", sql="bigint"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """Everything a task needs, shipped with it. The DataFrame's columns come in the order of `columns`."""

    secret: str = field(repr=False)
    columns: tuple[Column, ...]
    copied: int
    """How many of `columns`, from the first, are in the COPY stream; the rest only names rows."""
    numbered: bool
    """Whether each row also carries its Spark partition and its number in it."""
    dead_letter: bool
    deletes: Deletes | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return stream(self.secret, batches, ROWS_PER_FRAME, self.send, [column.name for column in self.columns])

    def send(self, feed: Feed, piece: Any, partition: int, first_row: int) -> None:
        """Check and encode one piece of a record batch, and put it on its way."""
        arrays = list(piece.columns[: self.copied])
        numbers = np.arange(first_row, first_row + piece.num_rows, dtype=np.int64)
        excused: Any = None
        if self.deletes is not None:
            arrays, excused = self.deletes.bare(arrays, [c.name for c in self.columns[: self.copied]])
        bad = find_bad(arrays, self.columns[: self.copied], self.deletes, excused)
        if bad:
            keep = set_aside(feed, piece, [c.name for c in self.columns], bad, dead_letter=self.dead_letter)
            arrays = [array.filter(pa.array(keep)) for array in arrays]
            numbers = numbers[keep]
        columns = self.columns[: self.copied]
        if self.numbered:
            arrays += [pa.array(np.full(len(numbers), partition, np.int64)), pa.array(numbers)]
            columns += NUMBERING
        if len(numbers):
            feed.send(DATA, memoryview(encode(arrays, columns)), len(numbers))


def find_bad(
    arrays: list[Any], columns: tuple[Column, ...], deletes: Deletes | None = None, deletions: Any = None
) -> dict[int, str]:
    """Row → why PostgreSQL would refuse it; only what can be told without asking. `deletions`: a mask of rows."""
    bad: dict[int, str] = {}
    for array, column in zip(arrays, columns, strict=True):
        valid = valid_rows(array)
        if column.required and len(valid):
            excused = deletes is not None and deletes.excuses(column.name)
            for row in np.flatnonzero((valid == 0) & ~deletions if excused else valid == 0).tolist():
                bad.setdefault(row, f"column {column.name} is null, and null is not allowed there")
        if column.wire in ("text", "json", "jsonb"):
            offsets, data = string_buffers(array)
            limit = -1 if column.max_chars is None else column.max_chars
            codes = check_text(offsets, data, valid, limit)
            for row in np.flatnonzero(codes).tolist():
                bad.setdefault(
                    row, f"column {column.name} {_TEXT_REASONS[int(codes[row])]}{_limit(column, codes[row])}"
                )
        elif column.wire == "uuid":
            offsets, data = string_buffers(array)
            _, good = hex_to_uuid(offsets, data, valid)
            for row in np.flatnonzero(good == 0).tolist():
                bad.setdefault(row, f"column {column.name} is not a UUID")
    return bad


_TEXT_REASONS = {
    BAD_UTF8: "is not valid UTF-8",
    NUL_BYTE: "holds a NUL byte, which PostgreSQL's text cannot",
    TOO_LONG: "is longer than",
}


def _limit(column: Column, code: int) -> str:
    return f" {column.sql}" if code == TOO_LONG else ""
