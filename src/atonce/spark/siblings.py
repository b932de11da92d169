"""Rows that one record gives (explode): each gets its index among them, so that a dead letter names one row.

They come one after the other, since only plans without a shuffle carry a row's origin (`planning/origin.py`). Where
every record gives one row or none, nothing is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from atonce.delivery.letters import ORIGIN


class Siblings:
    """Of one task: the rows of a record may lie in two pieces."""

    def __init__(self, names: Sequence[str]) -> None:
        known = {name: number for number, name in enumerate(names)}
        self._places = [known[name] for name in ORIGIN] if set(ORIGIN) <= set(names) else None
        self._last: tuple[Any, ...] | None = None
        self._count = 0
        """Rows so far of the record that came last."""

    def numbered(self, piece: Any) -> Any:
        if self._places is None or not piece.num_rows:
            return piece
        topic, partition, offset, given = (piece.column(place) for place in self._places)
        if pc.any(pc.not_equal(given, 0)).as_py():
            return piece  # a replay: they have theirs already, and their siblings are not here
        same = _as_before(topic, partition, offset)
        first = tuple(column[0].as_py() for column in (topic, partition, offset))
        carried = self._count if first == self._last else 0
        begins = np.flatnonzero(np.concatenate(([True], ~same)))
        index = np.arange(piece.num_rows) - np.repeat(begins, np.diff(np.append(begins, piece.num_rows)))
        if carried:
            index[: begins[1] if len(begins) > 1 else len(index)] += carried
        self._last = tuple(column[-1].as_py() for column in (topic, partition, offset))
        self._count = int(index[-1]) + 1
        if not carried and len(begins) == piece.num_rows:
            return piece  # the zeros that are there
        columns = list(piece.columns)
        columns[self._places[3]] = pa.array(index.astype(np.int32))
        return pa.RecordBatch.from_arrays(columns, names=piece.schema.names)


def _as_before(topic: Any, partition: Any, offset: Any) -> Any:
    """A mask, from the second row on: it comes of the record that the row before comes of."""
    same = np.ones(len(offset) - 1, bool)
    for column in (offset, partition, topic):
        if not same.any():
            break
        equal = pc.fill_null(pc.equal(column.slice(1), column.slice(0, len(column) - 1)), False)
        same &= equal.to_numpy(zero_copy_only=False)
    return same
