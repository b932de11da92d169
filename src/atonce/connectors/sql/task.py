"""What the Spark tasks of all database sinks do alike: stream rows to the driver in pieces, and put bad ones aside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from atonce.connectors.sql.bad_rows import NOT_STORED, bad_row, rows_at
from atonce.connectors.sql.options import TableOptions
from atonce.connectors.sql.rows_in import BAD, DEAD, WHY, Feed
from atonce.errors import AtOnceError, AttemptAborted, InvariantError
from atonce.spark.attempt import taken
from atonce.spark.siblings import Siblings
from atonce.spark.task import task_ids
from atonce.spark.task_errors import named

TASK_COLUMN, ROW_COLUMN = "atonce_task", "atonce_row"
"""A row's Spark partition and its number in it: the order of the input, where the database has to know it."""

Send = Callable[[Feed, Any, int, int], None]
"""(feed, piece of a record batch, Spark partition, number of its first row) → sent."""


def stream(secret: str, batches: Iterator[Any], rows_per_frame: int, send: Send, names: Sequence[str]) -> Iterator[Any]:
    """The body of a task: all its rows through one feed, then one row that says what was sent."""
    partition, attempt = task_ids()
    # Asked for before the first row is read: an attempt that fails while reading its input counts as one, too.
    address = taken().address
    if address is None:
        raise InvariantError("this task was not told where its rows go")
    feed = Feed(address, secret, partition, attempt)
    try:
        seen, siblings = 0, Siblings(names)
        for batch in batches:
            for at in range(0, batch.num_rows, rows_per_frame):
                piece = siblings.numbered(batch.slice(at, rows_per_frame))
                send(feed, piece, partition, seen)
                seen += piece.num_rows
        feed.finish()
    except AtOnceError as error:
        with contextlib.suppress(AttemptAborted):
            feed.send(WHY, named(error).encode())
        raise
    finally:
        feed.close()
    found = [[partition], [attempt], [feed.rows], [feed.bytes]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(values, pa.int64()) for values in found],
        names=["partition", "attempt", "row_count", "byte_count"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """What a task does with rows that delete."""

    flag: str
    """The boolean column that says so; null is no deletion."""
    keeps: frozenset[str] | None
    """What such a row carries on; None: all of it, since it is stored with its flag."""

    @classmethod
    def of(cls, sink: TableOptions) -> Deletes | None:
        if sink.flag is None:
            return None
        kept = frozenset({*sink.lasting, *NOT_STORED, sink.flag})
        return cls(flag=sink.flag, keeps=kept if sink.delete is not None else None)

    def bare(self, arrays: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], Any]:
        """The columns with what deletions do not carry on taken out of them; and which rows (a mask) are deletions."""
        gone = pc.fill_null(arrays[list(names).index(self.flag)], False)
        found = []
        for array, name in zip(arrays, names, strict=True):
            if name == self.flag:
                found.append(gone)
            elif self.keeps is None or name in self.keeps:
                found.append(array)
            else:
                found.append(pc.if_else(gone, pa.scalar(None, array.type), array))
        return found, gone.to_numpy(zero_copy_only=False)

    def excuses(self, name: str) -> bool:
        """Whether null is no fault in this column of a deletion."""
        return self.keeps is not None and name not in self.keeps


def set_aside(feed: Feed, piece: Any, names: Sequence[str], bad: Mapping[int, str], *, dead_letter: bool) -> Any:
    """Tell the driver of bad rows (row → reason). Returns which rows to keep, or raises if none may be left out."""
    places = sorted(bad)
    rows = rows_at(piece, names, places)
    found = [bad_row(row, bad[place]) for row, place in zip(rows, places, strict=True)]
    if not dead_letter:
        feed.send(BAD, json.dumps(found[0]).encode())
        raise ValueError(f"undeliverable row: {found[0]['reason']}")
    feed.send(DEAD, json.dumps(found).encode())
    keep = np.ones(piece.num_rows, bool)
    keep[places] = False
    return keep
