"""What is encoded is decoded the same, in every codec, with nulls and headers."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from atonce.records.columns import decode, locate
from atonce.records.encode import encode
from atonce.records.partitioner import assign
from tests.unit.records.batches import EVERYTHING, random_rows, rows_of, sealed

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("sliced", [False, True])
def test_rows_come_back_as_they_were_in_order_per_partition(compression: str, sliced: bool) -> None:
    rows = random_rows(700, seed=7)
    if sliced:  # a slice has offsets into its buffers, in bytes and in bits
        rows = rows.slice(133, 301)
    targets = assign(rows.column("key"), 5)
    blobs = encode(rows, targets, 5, compression=compression, max_batch_bytes=3000)
    found: dict[int, list[dict[str, object]]] = {p: [] for p in range(5)}
    for partition, count, blob in blobs:
        decoded = rows_of(sealed(blob), headers=True)
        assert len(decoded) == count
        found[partition] += decoded
    for partition in range(5):
        expected = [row for row, target in zip(rows.to_pylist(), targets, strict=True) if target == partition]
        assert [row["key"] for row in found[partition]] == [row["key"] for row in expected]
        assert [row["value"] for row in found[partition]] == [row["value"] for row in expected]
        assert [row["headers"] for row in found[partition]] == [row["headers"] or [] for row in expected]


def test_offsets_and_timestamps_are_those_of_the_records() -> None:
    times = [1_700_000_000_000, 1_700_000_000_500, 1_699_999_999_000]
    rows = pa.RecordBatch.from_pydict(
        {"key": pa.array([b"a", b"b", b"c"]), "value": pa.array([b"1", b"2", b"3"]), "timestamp": pa.array(times)}
    )
    ((_, _, blob),) = encode(rows, np.zeros(3, np.int32), 1)
    found = rows_of(sealed(blob, base_offset=100))
    assert [row["offset"] for row in found] == [100, 101, 102]
    assert [row["timestamp"].timestamp() * 1000 for row in found] == times
    assert [row["timestampType"] for row in found] == [0, 0, 0]


def test_log_append_time_is_the_batch_time_for_every_record() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"key": pa.array([b"a", b"b"]), "value": pa.array([b"1", b"2"]), "timestamp": pa.array([5000, 9000])}
    )
    ((_, _, blob),) = encode(rows, np.zeros(2, np.int32), 1)
    found = rows_of(sealed(blob, attributes=0x08))
    assert {row["timestamp"] for row in found} == {datetime.datetime(1970, 1, 1, 0, 0, 9, tzinfo=datetime.UTC)}
    assert [row["timestampType"] for row in found] == [1, 1]


def test_only_offsets_in_the_range_are_given() -> None:
    rows = random_rows(100, seed=1)
    ((_, _, blob),) = encode(rows, np.zeros(100, np.int32), 1)
    data = sealed(blob, base_offset=1000)
    assert [row["offset"] for row in rows_of(data, start=1010, end=1013)] == [1010, 1011, 1012]
    assert rows_of(data, start=1100, end=1200) == []


def test_a_cut_last_batch_is_left_for_the_next_fetch() -> None:
    rows = random_rows(50, seed=2)
    ((_, _, blob),) = encode(rows, np.zeros(50, np.int32), 1)
    first, second = sealed(blob), sealed(blob, base_offset=50)
    located = locate(first + second[:-3])
    assert (located.next_offset, located.used_bytes) == (50, len(first))
    assert decode(located, **EVERYTHING).rows == 50
    assert locate(b"").next_offset == -1
    assert locate(first[:40]).next_offset == -1


def test_batches_of_different_codecs_in_one_fetch_keep_their_order() -> None:
    rows, data = random_rows(40, seed=3), b""
    for number, compression in enumerate(CODECS * 2):
        ((_, _, blob),) = encode(rows, np.zeros(40, np.int32), 1, compression=compression)
        data += sealed(blob, base_offset=number * 40)
    found = rows_of(data, headers=True)
    assert [row["offset"] for row in found] == list(range(400))
    assert [row["value"] for row in found] == [row["value"] for row in rows.to_pylist()] * 10
