"""What a user's Arrow function may give, and how it is brought into shape."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from atonce.spark.arrow_transform import ENOUGH_BYTES, as_declared, together, transformed

ROWS = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})


@pytest.mark.parametrize("give", [lambda b: b, lambda b: pa.Table.from_batches([b]), lambda b: iter([b]), None])
def test_function_may_give_a_batch_a_table_or_several_batches(give: Any) -> None:
    assert list(transformed(give, ROWS)) == [ROWS]


def test_columns_are_brought_into_the_declared_order_and_types_and_others_are_left_out() -> None:
    declared = pa.schema([("b", pa.string()), ("a", pa.int16())])
    more = ROWS.append_column("c", pa.array([0, 0]))
    assert as_declared(more, declared).to_pydict() == {"b": ["x", "y"], "a": [1, 2]}
    assert as_declared(more, declared).schema == declared


def test_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match=r"gave the columns \['a', 'b'\], without the declared \['z'\]"):
        as_declared(ROWS, pa.schema([("a", pa.int64()), ("z", pa.int64())]))


def test_small_batches_are_joined_in_order_and_empty_ones_dropped() -> None:
    assert list(together([ROWS, ROWS.slice(0, 0), ROWS])) == [pa.concat_batches([ROWS, ROWS])]
    assert list(together([])) == []


def test_what_is_large_or_not_alike_is_not_held_back() -> None:
    large = pa.record_batch({"a": [1], "b": ["x" * ENOUGH_BYTES]})
    other = ROWS.select(["a"])
    given = iter([large, ROWS, other])
    found = together(given)
    assert next(found) == large
    assert list(given) == [ROWS, other], "more was read than was needed"
    assert list(together([ROWS, other])) == [ROWS, other]
    assert list(together([ROWS] * 3, enough=2 * ROWS.nbytes)) == [pa.concat_batches([ROWS, ROWS]), ROWS]
