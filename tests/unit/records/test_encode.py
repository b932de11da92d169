"""The bytes of an encoded batch, its limits, and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from atonce.errors import UndeliverableRow, UsageError
from atonce.records.encode import RowTooLarge, encode
from atonce.records.partitioner import assign
from tests.unit.records.batches import random_rows, rows_of, sealed

HEADER = ">qiibIhiqqqhii"


def test_the_header_is_blank_where_the_sender_fills_it_in() -> None:
    rows = random_rows(3, seed=1)
    ((partition, count, blob),) = encode(rows, np.full(3, 2, np.int32), 4, timestamp_ms=77)
    fields = struct.unpack_from(HEADER, blob)
    assert (partition, count) == (2, 3)
    assert fields == (0, len(blob) - 12, -1, 2, 0, 0, 2, 77, 77, -1, -1, -1, 3)


def test_blobs_keep_below_the_limit_and_lose_nothing() -> None:
    rows = random_rows(2000, seed=2)
    blobs = encode(rows, np.arange(2000, dtype=np.int32) % 3, 3, max_batch_bytes=5000)
    assert max(len(blob) for _, _, blob in blobs) <= 5000
    assert int(blobs.count.sum()) == 2000
    assert sorted(set(blobs.partition.tolist())) == [0, 1, 2]
    assert blobs.partition.tolist() == sorted(blobs.partition.tolist())


def test_a_row_that_no_batch_can_hold_is_named() -> None:
    rows = pa.RecordBatch.from_pydict({"key": pa.array([b"a"] * 3), "value": pa.array([b"x", b"y" * 2000, b"z"])})
    with pytest.raises(RowTooLarge, match=r"row 1: .*larger than a record batch may be \(1000 bytes\)") as raised:
        encode(rows, np.zeros(3, np.int32), 1, max_batch_bytes=1000)
    assert raised.value.row == 1


def test_a_row_of_exactly_the_limit_fits() -> None:
    rows = pa.RecordBatch.from_pydict({"key": pa.array([b"k"]), "value": pa.array([b"v" * 500])})
    ((_, _, blob),) = encode(rows, np.zeros(1, np.int32), 1, max_batch_bytes=1000)
    size = len(blob)
    assert len(encode(rows, np.zeros(1, np.int32), 1, max_batch_bytes=size)) == 1
    with pytest.raises(RowTooLarge):
        encode(rows, np.zeros(1, np.int32), 1, max_batch_bytes=size - 1)


def test_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UndeliverableRow, match="row 1: partition 4 is not one of 0 to 3"):
        encode(random_rows(2, seed=1), np.array([0, 4], np.int32), 4)


def test_an_unknown_codec_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="'brotli' is not one of: none, gzip, snappy, lz4, zstd"):
        encode(random_rows(1, seed=1), np.zeros(1, np.int32), 1, compression="brotli")


def test_a_missing_key_column_means_null_keys() -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(["text", None])})
    ((_, _, blob),) = encode(rows, np.zeros(2, np.int32), 1)
    assert [(row["key"], row["value"]) for row in rows_of(sealed(blob))] == [(None, b"text"), (None, None)]


def timed(*times: int | None, kind: pa.DataType | None = None) -> pa.RecordBatch:
    column = pa.array(times, kind or pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict({"value": pa.array([b"v"] * len(times)), "timestamp": column})


def test_each_record_has_its_own_timestamp_and_the_header_the_first_and_the_largest() -> None:
    ((_, _, blob),) = encode(timed(5_000_999, 9_000_000, 1_000_000), np.zeros(3, np.int32), 1)
    assert struct.unpack_from(">qq", blob, 27) == (5_000, 9_000)
    assert [row["timestamp"].timestamp() for row in rows_of(sealed(blob))] == [5.0, 9.0, 1.0]


def test_a_row_without_a_timestamp_has_the_time_of_sending() -> None:
    ((_, _, blob),) = encode(timed(1_000_000, None), np.zeros(2, np.int32), 1, timestamp_ms=77_000)
    assert [row["timestamp"].timestamp() for row in rows_of(sealed(blob))] == [1.0, 77.0]


@pytest.mark.parametrize(("unit", "ticks"), [("s", 3), ("ms", 3_000), ("us", 3_000_999), ("ns", 3_000_999_999)])
def test_every_unit_of_timestamps_is_taken(unit: str, ticks: int) -> None:
    ((_, _, blob),) = encode(timed(ticks, kind=pa.timestamp(unit)), np.zeros(1, np.int32), 1)
    assert struct.unpack_from(">q", blob, 27) == (3_000,)


def test_a_timestamp_before_1970_is_refused_by_row_and_another_type_by_name() -> None:
    with pytest.raises(UndeliverableRow, match="row 1: `timestamp` is before 1970"):
        encode(timed(1, -1), np.zeros(2, np.int32), 1)
    with pytest.raises(UsageError, match="got string"):
        encode(timed("x", kind=pa.string()), np.zeros(1, np.int32), 1)  # type: ignore[arg-type]


def test_no_rows_give_no_blobs() -> None:
    assert len(encode(random_rows(0, seed=1), np.zeros(0, np.int32), 4)) == 0


def test_a_batch_beyond_one_arrow_array_is_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import atonce.records.encode as module

    rows = random_rows(500, seed=9)
    whole = encode(rows, np.arange(500, dtype=np.int32) % 2, 2, timestamp_ms=1)
    monkeypatch.setattr(module, "SLICE_BYTES", 20_000)
    parts = encode(rows, np.arange(500, dtype=np.int32) % 2, 2, timestamp_ms=1)
    assert len(parts) > len(whole)
    for target in (0, 1):
        values = [
            [row["value"] for p, _, blob in blobs if p == target for row in rows_of(sealed(blob))]
            for blobs in (whole, parts)
        ]
        assert values[0] == values[1]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.large_string(), pa.string(), pa.binary_view()])
def test_every_kind_of_bytes_and_text_is_taken(kind: pa.DataType) -> None:
    rows = pa.RecordBatch.from_pydict({"key": pa.array(["a", None], kind), "value": pa.array(["x", "y"], kind)})
    ((_, _, blob),) = encode(rows, assign(rows.column("key"), 1), 1)
    assert [(row["key"], row["value"]) for row in rows_of(sealed(blob))] == [(b"a", b"x"), (None, b"y")]


def test_a_value_that_is_no_bytes_is_refused_by_its_type() -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([1, 2])})
    with pytest.raises(UsageError, match="a column of type int64 is neither binary nor string"):
        encode(rows, np.zeros(2, np.int32), 1)
