"""Arrow columns to record batches v2, compiled: one pass that groups rows by target partition and writes the bytes.

Each blob is a whole record batch, ready but for producer id, epoch, sequence and checksum, which the sender fills in
(`atonce.client.produce`). Rows of one partition keep their input order. All blobs of a call lie in one Arrow binary
array, so that they travel through Spark's shuffle as a column, without another copy.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import int64, njit, types

from atonce.errors import UndeliverableRow, UsageError
from atonce.records.arrow import BinaryColumn, binary_column
from atonce.records.compression import Compression, compress
from atonce.records.memory import (
    BYTES,
    INTS,
    INTS_IN,
    LONGS_IN,
    address,
    bit_is_set,
    copy,
    load_i32,
    load_i64,
    put_varint,
    store8,
    store_be16,
    store_be32,
    store_be64,
    varint_size,
)

_BINARY_VIEW, _STRING_VIEW = pa.binary_view().id, pa.string_view().id
DEFAULT_MAX_BATCH_BYTES = 900_000
"""Below Kafka's default `max.message.bytes` of 1,048,588, with room for what compression may add."""

HEADER_BYTES = 61
RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5
SLICE_BYTES = 1 << 30  # one binary array holds at most 2 GiB
_TICKS_PER_MS = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}

OK, TOO_LARGE = range(2)
NONE = BinaryColumn(None, 0, 0, 0, 0)


class RowTooLarge(UndeliverableRow):
    """One row is larger than a record batch may be. `row` is its index in the batch that was given."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, slots=True)
class Blobs:
    """Encoded record batches as columns, in order of partition. Iterating gives (partition, count, pyarrow Buffer)."""

    partition: Any
    """int32 per blob."""
    count: Any
    """int32: records in each blob."""
    data: Any
    """pa.BinaryArray: one whole record batch in each element; usable as a column as it is."""

    def __len__(self) -> int:
        return len(self.partition)

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        for partition, count, blob in zip(self.partition.tolist(), self.count.tolist(), self.data, strict=True):
            yield partition, count, blob.as_buffer()


@njit(inline="always")
def _size(ends: Any, valid: Any, bit: Any, row: Any) -> Any:
    """Bytes of one row; -1 for null, as Kafka writes it."""
    if valid != 0 and not bit_is_set(valid, row + bit):
        return np.int64(-1)
    return load_i32(ends + 4 * row + 4) - load_i32(ends + 4 * row)


@njit(inline="always")
def _field_size(size: Any) -> Any:
    return varint_size(size) + max(size, 0)


@njit(inline="always")
def _put_field(at: Any, origin: Any, size: Any) -> Any:
    at = put_varint(at, size)
    if size > 0:
        copy(at, origin, size)
        at += size
    return at


@njit(types.void(int64, int64, int64, int64, int64), cache=True, nogil=True)
def _put_header(at: Any, end: Any, count: Any, first_time: Any, last_time: Any) -> None:
    store_be64(at, 0)
    store_be32(at + 8, end - at - 12)
    store_be32(at + 12, -1)
    store8(at + 16, 2)
    store_be32(at + 17, 0)
    store_be16(at + 21, 0)
    store_be32(at + 23, count - 1)
    store_be64(at + 27, first_time)
    store_be64(at + 35, last_time)
    store_be64(at + 43, -1)
    store_be16(at + 51, -1)
    store_be32(at + 53, -1)
    store_be32(at + 57, count)


@njit(int64(LONGS_IN, int64, int64), cache=True, nogil=True)
def _headers_size(columns: Any, first: Any, stop: Any) -> Any:
    name_ends, content_ends, content_valid, content_bit = columns[8], columns[12], columns[14], columns[15]
    size = np.int64(0)
    for number in range(first, stop):
        size += _field_size(_size(name_ends, 0, 0, number))
        size += _field_size(_size(content_ends, content_valid, content_bit, number))
    return size


@njit(int64(int64, LONGS_IN, int64, int64), cache=True, nogil=True)
def _put_headers(at: Any, columns: Any, first: Any, stop: Any) -> Any:
    name_ends, names = columns[8], columns[9]
    content_ends, contents, content_valid, content_bit = columns[12], columns[13], columns[14], columns[15]
    for number in range(first, stop):
        at = _put_field(at, names + load_i32(name_ends + 4 * number), _size(name_ends, 0, 0, number))
        size = _size(content_ends, content_valid, content_bit, number)
        at = _put_field(at, contents + load_i32(content_ends + 4 * number), size)
    return at


@njit(types.int64(INTS_IN, int64, INTS, INTS), cache=True, nogil=True)
def _group(partitions: Any, n_partitions: Any, bounds: Any, order: Any) -> Any:
    """Rows by partition, input order kept within one. Returns the first row whose partition is out of range, or -1."""
    for row in range(len(partitions)):
        target = partitions[row]
        if target < 0 or target >= n_partitions:
            return row
        bounds[target + 1] += 1
    for target in range(n_partitions):
        bounds[target + 1] += bounds[target]
    place = bounds.copy()
    for row in range(len(partitions)):
        target = partitions[row]
        order[place[target]] = row
        place[target] += 1
    return -1


@njit(
    types.UniTuple(int64, 3)(INTS, INTS, LONGS_IN, int64, LONGS_IN, int64, BYTES, INTS, INTS, INTS),
    cache=True,
    nogil=True,
)
def _write(
    bounds: Any,
    order: Any,
    columns: Any,
    header_ends: Any,
    times: Any,
    limit: Any,
    out: Any,
    blob_partition: Any,
    blob_count: Any,
    blob_ends: Any,
) -> Any:
    """Returns (blobs, problem, row).

    `columns`: four numbers (see BinaryColumn) for each of key, value, header names and header values.
    `header_ends`: address of the list offsets, or 0. `times`: one entry for all rows, or one per row.
    """
    key_ends, keys, key_valid, key_bit = columns[0], columns[1], columns[2], columns[3]
    value_ends, values, value_valid, value_bit = columns[4], columns[5], columns[6], columns[7]
    rows, moments = address(order), address(times)
    step = 8 if len(times) > 1 else 0
    base = address(out)
    at, blobs = base, 0
    for target in range(len(bounds) - 1):
        index, stop = np.int64(bounds[target]), np.int64(bounds[target + 1])
        while index < stop:
            begin, at, first = at, at + HEADER_BYTES, index
            base_time = load_i64(moments + step * load_i32(rows + 4 * index))
            last_time = base_time
            while index < stop:
                row = load_i32(rows + 4 * index)
                moment = load_i64(moments + step * row)
                time_delta, offset_delta = moment - base_time, index - first
                key_size = _size(key_ends, key_valid, key_bit, row)
                value_size = _size(value_ends, value_valid, value_bit, row)
                size = 1 + varint_size(time_delta) + varint_size(offset_delta)
                size += _field_size(key_size) + _field_size(value_size)
                header_from, header_to = np.int64(0), np.int64(0)
                if header_ends != 0:
                    header_from, header_to = load_i32(header_ends + 4 * row), load_i32(header_ends + 4 * row + 4)
                    size += _headers_size(columns, header_from, header_to)
                size += varint_size(header_to - header_from)
                if at + varint_size(size) + size - begin > limit:
                    if index == first:
                        return blobs, TOO_LARGE, row
                    break
                at = put_varint(at, size)
                store8(at, 0)
                at = put_varint(at + 1, time_delta)
                at = put_varint(at, offset_delta)
                at = _put_field(at, keys + load_i32(key_ends + 4 * row), key_size)
                at = _put_field(at, values + load_i32(value_ends + 4 * row), value_size)
                at = put_varint(at, header_to - header_from)
                if header_to > header_from:
                    at = _put_headers(at, columns, header_from, header_to)
                last_time = max(last_time, moment)
                index += 1
            _put_header(begin, at, index - first, base_time, last_time)
            blob_partition[blobs] = target
            blob_count[blobs] = index - first
            blobs += 1
            blob_ends[blobs] = at - base
    return blobs, OK, -1


def encode(
    batch: Any,
    partitions: Any,
    n_partitions: int,
    *,
    compression: str = "none",
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    timestamp_ms: int | None = None,
) -> Blobs:
    """Encode columns `key`, `value` and, if they are there, `headers` and `timestamp` of a pa.RecordBatch.

    `partitions`: target partition per row (int32). `timestamp_ms`: of rows without a timestamp of their own; or now.
    Raises `RowTooLarge` for a row that no batch of `max_batch_bytes` can hold.
    """
    codec = compression_named(compression)
    names = set(batch.schema.names)
    key = batch.column("key") if "key" in names else pa.nulls(batch.num_rows, pa.binary())
    value = batch.column("value")
    headers = batch.column("headers") if "headers" in names else None
    key, value = _without_views(key), _without_views(value)
    bound = key.nbytes + value.nbytes + (headers.nbytes * 2 if headers is not None else 0)
    bound += batch.num_rows * RECORD_OVERHEAD
    if bound > SLICE_BYTES and batch.num_rows > 1:
        return _encode_halves(batch, partitions, n_partitions, compression, max_batch_bytes, timestamp_ms)
    moment = timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000
    times = _times(batch.column("timestamp"), moment) if "timestamp" in names else np.array([moment], np.int64)
    targets = np.ascontiguousarray(partitions, np.int32)
    bounds, order = np.zeros(n_partitions + 1, np.int32), np.empty(batch.num_rows, np.int32)
    bad = _group(targets, n_partitions, bounds, order)
    if bad >= 0:
        raise UndeliverableRow(f"row {bad}: partition {targets[bad]} is not one of 0 to {n_partitions - 1}")
    most = 2 * (bound // max(max_batch_bytes - HEADER_BYTES, 1)) + min(n_partitions, batch.num_rows) + 2
    out = np.empty(bound + most * HEADER_BYTES, np.uint8)
    blob_partition, blob_count = np.empty(most, np.int32), np.empty(most, np.int32)
    blob_ends = np.empty(most + 1, np.int32)
    headers, header_ends, *header_columns = (None, 0, NONE, NONE) if headers is None else _header_columns(headers)
    columns = [binary_column(key), binary_column(value), *header_columns]
    numbers = np.array([number for column in columns for number in column.numbers], np.int64)
    blob_ends[0] = 0
    blobs, problem, row = _write(
        bounds, order, numbers, header_ends, times, max_batch_bytes, out, blob_partition, blob_count, blob_ends
    )
    if problem == TOO_LARGE:
        raise RowTooLarge(
            f"row {row}: its record is larger than a record batch may be ({max_batch_bytes} bytes). "
            "Next: raise `max.request.size` of the sink and `max.message.bytes` of the topic, or drop the row.",
            row,
        )
    data = pa.Array.from_buffers(
        pa.binary(), blobs, [None, pa.py_buffer(blob_ends), pa.py_buffer(out[: int(blob_ends[blobs])])], 0
    )
    if codec is not Compression.NONE:
        data = pa.array([_packed(blob.as_buffer(), codec) for blob in data], pa.binary())
    return Blobs(blob_partition[:blobs], blob_count[:blobs], data)


def compression_named(name: str) -> Compression:
    try:
        return Compression[name.upper()]
    except KeyError:
        allowed = ", ".join(codec.name.lower() for codec in Compression)
        raise UsageError(f"compression {name!r} is not one of: {allowed}") from None


def _encode_halves(
    batch: Any, partitions: Any, n_partitions: int, compression: str, limit: int, moment: int | None
) -> Blobs:
    middle = batch.num_rows // 2
    parts = []
    for start, rows in ((0, middle), (middle, batch.num_rows - middle)):
        try:
            parts.append(
                encode(
                    batch.slice(start, rows),
                    partitions[start : start + rows],
                    n_partitions,
                    compression=compression,
                    max_batch_bytes=limit,
                    timestamp_ms=moment,
                )
            )
        except RowTooLarge as error:
            raise RowTooLarge(str(error), error.row + start) from None
    return Blobs(
        np.concatenate([part.partition for part in parts]),
        np.concatenate([part.count for part in parts]),
        pa.concat_arrays([part.data for part in parts]),
    )


def _without_views(column: Any) -> Any:
    """Older pyarrow cannot measure views, and views of the same bytes take more room when they are written out."""
    return column.cast(pa.binary()) if column.type.id in (_BINARY_VIEW, _STRING_VIEW) else column


def milliseconds(column: Any) -> Any:
    """A column of timestamps, or of milliseconds since 1970, as int64 milliseconds. Null stays null.

    Rounded down, so that what lies before 1970 stays below 0 and can be refused by whoever has rows to name.
    """
    if pa.types.is_timestamp(column.type):
        valid = None if column.null_count == 0 else column.is_valid()
        ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        per_ms = _TICKS_PER_MS[column.type.unit]
        times = pa.array(ticks // per_ms if per_ms >= 1 else ticks * 1000)
        return times if valid is None else pc.if_else(valid, times, None)
    if not pa.types.is_integer(column.type):
        raise UsageError(f"`timestamp` must be a timestamp, or milliseconds as an integer; got {column.type}")
    return column.cast(pa.int64())


def _times(column: Any, moment: int) -> Any:
    """One time per row; `moment` where a row has none."""
    times = milliseconds(column).fill_null(moment).to_numpy(zero_copy_only=False)
    if len(times) and times.min() < 0:
        raise UndeliverableRow(f"row {int(np.argmin(times))}: `timestamp` is before 1970, which Kafka cannot hold")
    return np.ascontiguousarray(times, np.int64)


def _header_columns(headers: Any) -> tuple[Any, int, BinaryColumn, BinaryColumn]:
    """The array that holds the list offsets, their address, the names, the values."""
    if not pa.types.is_list(headers.type) or not pa.types.is_struct(headers.type.value_type):
        raise UsageError(f"`headers` must be array<struct<key string, value binary>>, got {headers.type}")
    if headers.null_count:  # a null list has no headers, whatever its offsets say
        headers = pa.array(headers.to_pylist(), headers.type)
    pairs = headers.values
    names, contents = pairs.field(0), pairs.field(1)
    if names.null_count:
        raise UndeliverableRow("a header has no key; Kafka needs one")
    ends = headers.buffers()[1].address + 4 * headers.offset
    return headers, ends, binary_column(names), binary_column(contents)


def _packed(blob: Any, codec: Compression) -> bytes:
    """The same batch with its records compressed."""
    whole = memoryview(blob)
    records = compress(codec, bytes(whole[HEADER_BYTES:]))
    head = bytearray(whole[:HEADER_BYTES])
    struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(records))
    struct.pack_into(">h", head, 21, codec)
    return bytes(head) + records
