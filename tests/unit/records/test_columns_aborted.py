"""Aborted transactions are dropped by Kafka's own rule (S11, F25)."""

from __future__ import annotations

import numpy as np

from atonce.records.encode import encode
from tests.unit.records.batches import marker, random_rows, rows_of, sealed

TRANSACTIONAL = 0x10


def written(offset: int, producer: int, rows: int = 10) -> bytes:
    ((_, _, blob),) = encode(random_rows(rows, seed=offset), np.zeros(rows, np.int32), 1)
    attributes = TRANSACTIONAL if producer >= 0 else 0
    return sealed(blob, base_offset=offset, attributes=attributes, producer_id=producer, epoch=0)


def test_an_aborted_producer_is_dropped_until_its_marker_and_heard_again_after() -> None:
    data = (
        written(0, producer=1)
        + written(10, producer=2)
        + marker(20, producer_id=1, commit=False)
        + written(21, producer=1)
        + marker(31, producer_id=2, commit=True)
        + marker(32, producer_id=1, commit=True)
        + written(33, producer=-1)
    )
    offsets = [row["offset"] for row in rows_of(data, aborted=[(1, 0)])]
    assert offsets == [*range(10, 20), *range(21, 31), *range(33, 43)]


def test_one_producer_aborts_twice_in_one_fetch() -> None:
    data = b""
    for start in (0, 11, 22):
        data += written(start, producer=5) + marker(start + 10, producer_id=5, commit=start == 11)
    offsets = [row["offset"] for row in rows_of(data, aborted=[(5, 22), (5, 0)])]
    assert offsets == list(range(11, 21))


def test_an_abort_that_began_before_the_fetch_counts_from_its_start() -> None:
    data = written(100, producer=5) + marker(110, producer_id=5, commit=False) + written(111, producer=5)
    offsets = [row["offset"] for row in rows_of(data, aborted=[(5, 40)], start=100)]
    assert offsets == list(range(111, 121))


def test_plain_records_of_an_aborted_producer_id_stay() -> None:
    """Without the transactional bit a record belongs to no transaction."""
    ((_, _, blob),) = encode(random_rows(5, seed=1), np.zeros(5, np.int32), 1)
    data = sealed(blob, producer_id=5, epoch=0)
    assert len(rows_of(data, aborted=[(5, 0)])) == 5


def test_without_a_list_everything_is_given() -> None:
    """That is what read_uncommitted sees."""
    data = written(0, producer=1) + marker(10, producer_id=1, commit=False)
    assert len(rows_of(data)) == 10
