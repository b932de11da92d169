"""What the Spark tasks of all database sinks do alike: stream rows to the driver in pieces, and put bad ones aside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from atonce.errors import AtOnceError, AttemptAborted
from atonce.sinks.errand import taken
from atonce.sinks.sql_bad_rows import bad_row, rows_at
from atonce.sinks.sql_intake import BAD, DEAD, WHY, Feed
from atonce.sinks.task_errors import named

TASK_COLUMN, ROW_COLUMN = "atonce_task", "atonce_row"
"""A row's Spark partition and its number in it: the order of the input, where the database has to know it."""

Send = Callable[[Feed, Any, int, int], None]
"""(feed, piece of a record batch, Spark partition, number of its first row) → sent."""


def stream(secret: str, batches: Iterator[Any], rows_per_frame: int, send: Send) -> Iterator[Any]:
    """The body of a task: all its rows through one feed, then one row that says what was sent."""
    from pyspark import TaskContext

    context = TaskContext.get()
    partition, attempt = context.partitionId(), context.taskAttemptId()
    # Asked for before the first row is read: an attempt that fails while reading its input counts as one, too.
    host, port = taken()["address"]
    feed = Feed((host, port), secret, partition, attempt)
    try:
        seen = 0
        for batch in batches:
            for at in range(0, batch.num_rows, rows_per_frame):
                piece = batch.slice(at, rows_per_frame)
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
