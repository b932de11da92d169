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
from numba import int64, njit, types

from atonce.errors import UndeliverableRow, UsageError
from atonce.records.compression import Compression, compress
from atonce.records.memory import (
    BYTES,
    BYTES_IN,
    INTS,
    INTS_IN,
    LONGS_IN,
    copy,
    put_varint,
    store16,
    store32,
    store64,
    varint_size,
)
from atonce.records.partitioner import binary_buffers

DEFAULT_MAX_BATCH_BYTES = 900_000
"""Below Kafka's default `max.message.bytes` of 1,048,588, with room for what compression may add."""

HEADER_BYTES = 61
RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5
SLICE_BYTES = 1 << 30  # one binary array holds at most 2 GiB

OK, TOO_LARGE, BAD_PARTITION = range(3)


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


COLUMN = (INTS_IN, BYTES_IN, BYTES_IN, int64)  # offsets, data, validity, bit of row 0


@njit(inline="always")
def _is_null(valid: Any, bit: Any) -> Any:
    return len(valid) > 0 and not (valid[bit >> 3] >> (bit & 7)) & 1


@njit(inline="always")
def _put_field(out: Any, at: Any, data: Any, start: Any, size: Any) -> Any:
    at = put_varint(out, at, size)
    if size > 0:
        copy(out, at, data, start, size)
        at += size
    return at


@njit(types.void(BYTES, int64, int64, int64, int64, int64), cache=True, nogil=True)
def _put_header(out: Any, at: Any, end: Any, count: Any, first_time: Any, last_time: Any) -> None:
    store64(out, at, 0)
    store32(out, at + 8, end - at - 12)
    store32(out, at + 12, -1)
    out[at + 16] = 2
    store32(out, at + 17, 0)
    store16(out, at + 21, 0)
    store32(out, at + 23, count - 1)
    store64(out, at + 27, first_time)
    store64(out, at + 35, last_time)
    store64(out, at + 43, -1)
    store16(out, at + 51, -1)
    store32(out, at + 53, -1)
    store32(out, at + 57, count)


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
    types.UniTuple(int64, 3)(
        INTS, INTS, *COLUMN, *COLUMN, LONGS_IN, INTS_IN, *COLUMN, *COLUMN, int64, BYTES, INTS, INTS, INTS
    ),
    cache=True,
    nogil=True,
)
def _write(
    bounds: Any,
    order: Any,
    key_ends: Any,
    keys: Any,
    key_valid: Any,
    key_bit: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    value_bit: Any,
    times: Any,
    header_ends: Any,
    name_ends: Any,
    names: Any,
    name_valid: Any,
    name_bit: Any,
    content_ends: Any,
    contents: Any,
    content_valid: Any,
    content_bit: Any,
    limit: Any,
    out: Any,
    blob_partition: Any,
    blob_count: Any,
    blob_ends: Any,
) -> Any:
    """Returns (blobs, problem, row). `times` has one entry for all rows, or one per row; `header_ends` may be empty."""
    at, blobs = 0, 0
    blob_ends[0] = 0
    per_row_time, with_headers = len(times) > 1, len(header_ends) > 0
    for target in range(len(bounds) - 1):
        index, stop = bounds[target], bounds[target + 1]
        while index < stop:
            begin, at, first = at, at + HEADER_BYTES, index
            base_time = times[order[index]] if per_row_time else times[0]
            last_time = base_time
            while index < stop:
                row = order[index]
                moment = times[row] if per_row_time else base_time
                time_delta, offset_delta = moment - base_time, np.int64(index - first)
                key_from, value_from = np.int64(key_ends[row]), np.int64(value_ends[row])
                key_size = -1 if _is_null(key_valid, row + key_bit) else np.int64(key_ends[row + 1]) - key_from
                value_size = (
                    -1 if _is_null(value_valid, row + value_bit) else np.int64(value_ends[row + 1]) - value_from
                )
                size = 1 + varint_size(time_delta) + varint_size(offset_delta)
                size += varint_size(key_size) + max(key_size, 0) + varint_size(value_size) + max(value_size, 0)
                header_from, header_to = np.int64(0), np.int64(0)
                if with_headers:
                    header_from, header_to = np.int64(header_ends[row]), np.int64(header_ends[row + 1])
                    for number in range(header_from, header_to):
                        name_size = np.int64(name_ends[number + 1]) - np.int64(name_ends[number])
                        size += varint_size(name_size) + name_size
                        content_size = np.int64(content_ends[number + 1]) - np.int64(content_ends[number])
                        if _is_null(content_valid, number + content_bit):
                            size += 1
                        else:
                            size += varint_size(content_size) + content_size
                size += varint_size(header_to - header_from)
                if at + varint_size(size) + size - begin > limit:
                    if index == first:
                        return blobs, TOO_LARGE, row
                    break
                at = put_varint(out, at, size)
                out[at] = 0
                at = put_varint(out, at + 1, time_delta)
                at = put_varint(out, at, offset_delta)
                at = _put_field(out, at, keys, key_from, key_size)
                at = _put_field(out, at, values, value_from, value_size)
                at = put_varint(out, at, header_to - header_from)
                for number in range(header_from, header_to):
                    name_size = np.int64(name_ends[number + 1]) - np.int64(name_ends[number])
                    at = _put_field(out, at, names, np.int64(name_ends[number]), name_size)
                    content_size = np.int64(content_ends[number + 1]) - np.int64(content_ends[number])
                    if _is_null(content_valid, number + content_bit):
                        content_size = np.int64(-1)
                    at = _put_field(out, at, contents, np.int64(content_ends[number]), content_size)
                last_time = max(last_time, moment)
                index += 1
            _put_header(out, begin, at, index - first, base_time, last_time)
            blob_partition[blobs] = target
            blob_count[blobs] = index - first
            blobs += 1
            blob_ends[blobs] = at
    return blobs, OK, -1


NO_INTS = np.empty(0, np.int32)
NO_BYTES = np.empty(0, np.uint8)
NO_HEADERS = (NO_INTS, NO_INTS, NO_BYTES, NO_BYTES, 0, NO_INTS, NO_BYTES, NO_BYTES, 0)


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

    `partitions`: target partition per row (int32). `timestamp_ms`: of all rows when there is no such column; or now.
    Raises `RowTooLarge` for a row that no batch of `max_batch_bytes` can hold.
    """
    codec = compression_named(compression)
    names = set(batch.schema.names)
    key = batch.column("key") if "key" in names else pa.nulls(batch.num_rows, pa.binary())
    value = batch.column("value")
    headers = batch.column("headers") if "headers" in names else None
    bound = key.nbytes + value.nbytes + (headers.nbytes * 2 if headers is not None else 0)
    bound += batch.num_rows * RECORD_OVERHEAD
    if bound > SLICE_BYTES and batch.num_rows > 1:
        return _encode_halves(batch, partitions, n_partitions, compression, max_batch_bytes, timestamp_ms)
    if "timestamp" in names:
        times = _milliseconds(batch.column("timestamp"))
    else:
        times = np.array([timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000], np.int64)
    targets = np.ascontiguousarray(partitions, np.int32)
    bounds, order = np.zeros(n_partitions + 1, np.int32), np.empty(batch.num_rows, np.int32)
    bad = _group(targets, n_partitions, bounds, order)
    if bad >= 0:
        raise UndeliverableRow(f"row {bad}: partition {targets[bad]} is not one of 0 to {n_partitions - 1}")
    most = 2 * (bound // max(max_batch_bytes - HEADER_BYTES, 1)) + min(n_partitions, batch.num_rows) + 2
    out = np.empty(bound + most * HEADER_BYTES, np.uint8)
    blob_partition, blob_count = np.empty(most, np.int32), np.empty(most, np.int32)
    blob_ends = np.empty(most + 1, np.int32)
    blobs, problem, row = _write(
        bounds, order, *binary_buffers(key), *binary_buffers(value), times,
        *(NO_HEADERS if headers is None else _header_buffers(headers)),
        max_batch_bytes, out, blob_partition, blob_count, blob_ends,
    )  # fmt: skip
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


def _milliseconds(column: Any) -> Any:
    if column.null_count:
        raise UndeliverableRow(
            f"row {int(np.argmax(np.asarray(column.is_null())))}: `timestamp` is null; a record needs one"
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    times = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(times, np.int64)


def _header_buffers(headers: Any) -> tuple[Any, ...]:
    if not pa.types.is_list(headers.type) or not pa.types.is_struct(headers.type.value_type):
        raise UsageError(f"`headers` must be array<struct<key string, value binary>>, got {headers.type}")
    ends = np.frombuffer(headers.buffers()[1], np.int32)[headers.offset : headers.offset + len(headers) + 1]
    if headers.null_count:  # a null list has no headers, whatever its offsets say
        headers = pa.array(headers.to_pylist(), headers.type)
        ends = np.asarray(headers.offsets).astype(np.int32)
    pairs = headers.values
    names, contents = pairs.field(0), pairs.field(1)
    if names.null_count:
        raise UndeliverableRow("a header has no key; Kafka needs one")
    return ends, *binary_buffers(names), *binary_buffers(contents)


def _packed(blob: Any, codec: Compression) -> bytes:
    """The same batch with its records compressed."""
    whole = memoryview(blob)
    records = compress(codec, bytes(whole[HEADER_BYTES:]))
    head = bytearray(whole[:HEADER_BYTES])
    struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(records))
    struct.pack_into(">h", head, 21, codec)
    return bytes(head) + records
