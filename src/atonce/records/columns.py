"""Record batches to Arrow columns, compiled: no Python object per record, one pass over the bytes.

    locate   finds the batches in what a fetch returned      (one table row per batch)
    settle   checks checksums, unpacks compressed batches, drops control records and aborted transactions
    decode   fills key, value, offset, timestamp columns from the rows that lie in [start, end)

Bytes come from a network, so nothing in them is believed: every length is checked before it is followed, and a
batch that does not add up raises `CorruptLogError` instead of being read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
from numba import int64, njit, types

from atonce.errors import CorruptLogError
from atonce.records.compression import DEFAULT_LIMIT, Compression, DecompressionFailed, decompress
from atonce.records.headers import headers_column
from atonce.records.memory import BYTES, BYTES_IN, INTS, LONGS, TABLE, copy, load16, load32, load64, read_varint

HEADER_BYTES = 61
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20

# Columns of the batch table.
AT, FROM, TO, WHERE, BASE_OFFSET, LAST_OFFSET, BASE_TIME, MAX_TIME, ATTRIBUTES, PRODUCER_ID, COUNT, SKIP = range(12)
TABLE_WIDTH = 12

OK, BAD_LENGTH, BAD_MAGIC, BAD_COUNT, BAD_RECORD = range(5)
PROBLEMS = {
    BAD_LENGTH: "a record batch gives a length that is too small to hold its own header",
    BAD_MAGIC: "a record batch is not of format version 2 (older formats are not read)",
    BAD_COUNT: "a record batch claims more records than its bytes can hold",
    BAD_RECORD: "the lengths of its records do not add up",
}


@njit(types.UniTuple(int64, 3)(BYTES_IN, TABLE), cache=True, nogil=True)
def scan(data: Any, table: Any) -> Any:
    """One row per whole batch. Returns (batches, bytes used, problem). A cut last batch is ordinary and left over."""
    at, found, size = 0, 0, len(data)
    while at + 17 <= size:
        if data[at + 16] != 2:
            return found, at, BAD_MAGIC
        length = load32(data, at + 8)
        if length < HEADER_BYTES - 12:
            return found, at, BAD_LENGTH
        if at + 12 + length > size:
            break
        row = table[found]
        row[AT] = at
        row[FROM] = at + HEADER_BYTES
        row[TO] = at + 12 + length
        row[WHERE] = 0
        row[BASE_OFFSET] = load64(data, at)
        row[LAST_OFFSET] = row[BASE_OFFSET] + load32(data, at + 23)
        row[BASE_TIME] = load64(data, at + 27)
        row[MAX_TIME] = load64(data, at + 35)
        row[ATTRIBUTES] = load16(data, at + 21)
        row[PRODUCER_ID] = load64(data, at + 43)
        row[COUNT] = load32(data, at + 57)
        row[SKIP] = 0
        if row[COUNT] < 0 or load32(data, at + 23) < 0:
            return found, at, BAD_COUNT
        found += 1
        at += 12 + length
    return found, at, OK


@njit(
    types.UniTuple(int64, 6)(
        BYTES_IN, BYTES_IN, TABLE, int64, int64, INTS, BYTES, BYTES, INTS, BYTES, BYTES, LONGS, LONGS, INTS, LONGS
    ),
    cache=True,
    nogil=True,
)
def fill(
    data: Any,
    unpacked: Any,
    table: Any,
    first: Any,
    stop: Any,
    key_ends: Any,
    keys: Any,
    key_valid: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    offsets: Any,
    times: Any,
    time_types: Any,
    header_at: Any,
) -> Any:
    """Rows with first <= offset < stop. Returns (rows, key nulls, value nulls, problem, batch, headers).

    `keys` and `values` are as large as all the records together, so a checked length always fits.
    `header_at` gets where a row's headers stand, or is empty when nobody asks for them.
    """
    row, key_at, value_at, key_nulls, value_nulls, headers = 0, 0, 0, 0, 0, 0
    want_headers = len(header_at) > 0
    key_ends[0] = 0
    value_ends[0] = 0
    for number in range(len(table)):
        batch = table[number]
        if batch[SKIP]:
            continue
        source = unpacked if batch[WHERE] else data
        at, end = batch[FROM], batch[TO]
        append_time = (batch[ATTRIBUTES] & LOG_APPEND_TIME) != 0
        for _ in range(batch[COUNT]):
            length, at = read_varint(source, at, end)
            if at < 0 or length < 1 or length > end - at:
                return row, key_nulls, value_nulls, BAD_RECORD, number, headers
            record_end = at + length
            time_delta, at = read_varint(source, at + 1, record_end)
            if at < 0:
                return row, key_nulls, value_nulls, BAD_RECORD, number, headers
            offset_delta, at = read_varint(source, at, record_end)
            if at < 0:
                return row, key_nulls, value_nulls, BAD_RECORD, number, headers
            key_size, at = read_varint(source, at, record_end)
            if at < 0 or key_size > record_end - at:
                return row, key_nulls, value_nulls, BAD_RECORD, number, headers
            key_from = at
            if key_size > 0:
                at += key_size
            value_size, at = read_varint(source, at, record_end)
            if at < 0 or value_size > record_end - at:
                return row, key_nulls, value_nulls, BAD_RECORD, number, headers
            offset = batch[BASE_OFFSET] + offset_delta
            if first <= offset and offset < stop:
                if key_size >= 0:
                    copy(keys, key_at, source, key_from, key_size)
                    key_at += key_size
                    key_valid[row >> 3] |= np.uint8(1 << (row & 7))
                else:
                    key_nulls += 1
                if value_size >= 0:
                    copy(values, value_at, source, at, value_size)
                    value_at += value_size
                    value_valid[row >> 3] |= np.uint8(1 << (row & 7))
                else:
                    value_nulls += 1
                key_ends[row + 1] = key_at
                value_ends[row + 1] = value_at
                offsets[row] = offset
                if append_time:
                    times[row] = batch[MAX_TIME] * 1000
                    time_types[row] = 1
                else:
                    times[row] = (batch[BASE_TIME] + time_delta) * 1000
                    time_types[row] = 0
                if want_headers:
                    if value_size > 0:
                        at += value_size
                    header_count, at = read_varint(source, at, record_end)
                    if at < 0 or header_count < 0 or header_count > record_end - at:
                        return row, key_nulls, value_nulls, BAD_RECORD, number, headers
                    header_at[row * 4] = batch[WHERE]
                    header_at[row * 4 + 1] = at
                    header_at[row * 4 + 2] = record_end
                    header_at[row * 4 + 3] = header_count
                    headers += header_count
                row += 1
            at = record_end
        if at != end:
            return row, key_nulls, value_nulls, BAD_RECORD, number, headers
    return row, key_nulls, value_nulls, OK, 0, headers


@dataclass(frozen=True, slots=True)
class Located:
    """The whole batches in what one fetch returned. Enough to ask for the next fetch before decoding this one."""

    data: Any
    table: Any
    next_offset: int
    """After the last whole batch, control batches included; -1 when there is none."""
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns of the rows asked for."""

    rows: int
    columns: dict[str, Any]
    """key, value, offset, timestamp, timestampType and, when asked for, headers: pyarrow arrays."""


def locate(data: Any, where: str = "record batches") -> Located:
    source = np.frombuffer(data, np.uint8)
    table = np.empty((len(source) // HEADER_BYTES + 1, TABLE_WIDTH), np.int64)
    found, used, problem = scan(source, table)
    if problem:
        raise corrupt(problem, where, used, None)
    return Located(data, table[:found], int(table[found - 1, LAST_OFFSET]) + 1 if found else -1, used)


def decode(
    located: Located,
    *,
    start: int,
    end: int,
    aborted: Iterable[tuple[int, int]] = (),
    headers: bool = False,
    check: bool = True,
    where: str = "record batches",
) -> Decoded:
    """Rows with start <= offset < end. `aborted` lists (producer id, first offset) as the broker gave them."""
    source, table = np.frombuffer(located.data, np.uint8), located.table
    unpacked = settle(located.data, source, table, end, sorted(aborted, key=lambda entry: entry[1]), check, where)
    return Decoded(*_columns(source, unpacked, table, start, end, headers, where))


def settle(
    data: Any, source: Any, table: Any, end: int, aborted: list[tuple[int, int]], check: bool, where: str
) -> Any:
    """Checksums; unpacked records; which batches to skip. Returns the unpacked bytes of all compressed batches."""
    attributes = table[:, ATTRIBUTES]
    table[:, SKIP] = ((attributes & CONTROL) != 0) | (table[:, BASE_OFFSET] >= end)
    view = memoryview(data).cast("B")
    if check:
        for at, to in zip(table[:, AT].tolist(), table[:, TO].tolist(), strict=True):
            if crc32c.crc32c(view[at + 21 : to]) != int.from_bytes(view[at + 17 : at + 21], "big"):
                raise CorruptLogError(
                    f"{where}: the checksum of the batch at offset {int.from_bytes(view[at : at + 8], 'big')} "
                    f"(byte {at} of the fetch) does not match its bytes. Next: check the broker's disk."
                )
    if aborted:
        _skip_aborted(source, table, aborted)
    packed = np.flatnonzero(((attributes & CODEC_MASK) != 0) & (table[:, SKIP] == 0)).tolist()
    parts, size = [], 0
    for number in packed:
        row = table[number]
        try:
            codec = Compression(int(row[ATTRIBUTES]) & CODEC_MASK)
            records = decompress(codec, view[row[FROM] : row[TO]], limit=DEFAULT_LIMIT - size)
        except (DecompressionFailed, ValueError) as error:
            raise CorruptLogError(
                f"{where}: the batch at offset {row[BASE_OFFSET]} cannot be unpacked: {error}"
            ) from error
        parts.append(np.frombuffer(records, np.uint8))
        row[FROM], row[TO], row[WHERE] = size, size + len(parts[-1]), 1
        size += len(parts[-1])
    return np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.empty(0, np.uint8)


def _skip_aborted(source: Any, table: Any, aborted: list[tuple[int, int]]) -> None:
    """Kafka's own rule: an entry counts from its first offset on, until that producer's abort marker."""
    open_aborts: set[int] = set()
    coming = list(reversed(aborted))
    for row in table:
        while coming and coming[-1][1] <= row[LAST_OFFSET]:
            open_aborts.add(coming.pop()[0])
        producer = int(row[PRODUCER_ID])
        if not int(row[ATTRIBUTES]) & TRANSACTIONAL or producer not in open_aborts:
            continue
        if not int(row[ATTRIBUTES]) & CONTROL:
            row[SKIP] = 1
        elif _is_abort_marker(source, row):
            open_aborts.discard(producer)


def _is_abort_marker(source: Any, row: Any) -> bool:
    # length, attributes, time delta, offset delta, key length: one byte each in a marker; then version and type.
    at = int(row[FROM]) + 5
    return at + 4 <= int(row[TO]) and source[at + 2] == 0 and source[at + 3] == 0


def _columns(
    source: Any, unpacked: Any, table: Any, start: int, end: int, headers: bool, where: str
) -> tuple[int, dict[str, Any]]:
    live = table[:, SKIP] == 0
    sizes = (table[:, TO] - table[:, FROM])[live]
    # A record takes seven bytes at least: more records than that is a lie, and would be a huge allocation.
    if np.any(table[:, COUNT][live] * 7 > sizes):
        raise corrupt(BAD_COUNT, where, 0, int(table[live][np.argmax(table[:, COUNT][live] * 7 > sizes), BASE_OFFSET]))
    most = int(table[:, COUNT][live].sum())
    size = int(sizes.sum())
    if size > 2**31 - 1:
        raise corrupt(BAD_RECORD, f"{where}: {size} bytes of records in one fetch", 0, int(table[0, BASE_OFFSET]))
    key_ends, value_ends = np.empty(most + 1, np.int32), np.empty(most + 1, np.int32)
    keys, values = np.empty(size, np.uint8), np.empty(size, np.uint8)
    key_valid, value_valid = np.zeros((most + 7) // 8, np.uint8), np.zeros((most + 7) // 8, np.uint8)
    offsets, times, time_types = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    header_at = np.empty(most * 4 if headers else 0, np.int64)
    rows, key_nulls, value_nulls, problem, number, header_count = fill(
        source, unpacked, table, start, end, key_ends, keys, key_valid, value_ends, values, value_valid,
        offsets, times, time_types, header_at,
    )  # fmt: skip
    if problem:
        raise corrupt(problem, where, int(table[number, AT]), int(table[number, BASE_OFFSET]))
    columns = {
        "key": _binary(rows, key_ends, keys, key_valid, key_nulls),
        "value": _binary(rows, value_ends, values, value_valid, value_nulls),
        "offset": pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offsets)], 0),
        "timestamp": pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, pa.py_buffer(times)], 0),
        "timestampType": pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(time_types)], 0),
    }
    if headers:
        columns["headers"] = headers_column(source, unpacked, header_at, rows, header_count, where)
    return rows, columns


def _binary(rows: int, ends: Any, data: Any, valid: Any, nulls: int) -> Any:
    used = int(ends[rows])
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(ends), pa.py_buffer(data[:used])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def corrupt(problem: int, where: str, at: int, base_offset: int | None) -> CorruptLogError:
    spot = f"byte {at} of the fetch" if base_offset is None else f"the batch at offset {base_offset}"
    return CorruptLogError(f"{where}: {PROBLEMS[problem]} ({spot}). Nothing of this fetch was used.")
