"""Rows of one record are numbered, whatever pieces they come in; a record that gives one row costs nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from atonce.delivery.letters import ORIGIN
from atonce.spark.siblings import Siblings

NAMES = ["value", *ORIGIN]


def piece(rows: list[tuple[str, int, int]], index: int = 0) -> Any:
    columns = [
        pa.array(range(len(rows))),
        pa.array([row[0] for row in rows], pa.string()),
        pa.array([row[1] for row in rows], pa.int32()),
        pa.array([row[2] for row in rows], pa.int64()),
        pa.array([index] * len(rows), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=NAMES)


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 32), max_size=5),
)
def test_index_does_not_depend_on_the_pieces(counts: list[int], cuts: list[int]) -> None:
    # The offsets are alike at the border of two partitions.
    places = [("a" if number % 3 else "b", number % 2, number // 2) for number in range(len(counts))]
    rows = [place for place, count in zip(places, counts, strict=True) for _ in range(count)]
    wanted = [index for count in counts for index in range(count)]
    siblings, found = Siblings(NAMES), []
    bounds = sorted({0, len(rows), *(min(each, len(rows)) for each in cuts)})
    for start, end in itertools.pairwise(bounds):
        found += siblings.numbered(piece(rows[start:end])).column(ORIGIN[3]).to_pylist()
    assert found == wanted


def test_rows_without_an_origin_or_with_an_index_stay_as_they_are() -> None:
    plain = pa.RecordBatch.from_arrays([pa.array([1, 2])], names=["value"])
    assert Siblings(["value"]).numbered(plain) is plain
    replayed = piece([("a", 0, 1), ("a", 0, 1)], index=3)
    assert Siblings(NAMES).numbered(replayed) is replayed
