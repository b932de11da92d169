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
from atonce.records.memory import (
    BYTES_IN,
    LONGS,
    TABLE,
    address,
    copy,
    load8,
    load_be16,
    load_be32,
    load_be64,
    read_varint,
    set_bit,
    store_i32,
    store_i64,
)

HEADER_BYTES = 61
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20

# Columns of the batch table.
AT, FROM, TO, WHERE, BASE_OFFSET, LAST_OFFSET, BASE_TIME, MAX_TIME, ATTRIBUTES, PRODUCER_ID, COUNT, SKIP, EPOCH = range(
    13
)
TABLE_WIDTH = 13

OK, BAD_LENGTH, BAD_MAGIC, BAD_COUNT, BAD_RECORD, BAD_OFFSET = range(6)
PROBLEMS = {
    BAD_LENGTH: "a record batch gives a length that is too small to hold its own header",
    BAD_MAGIC: "a record batch is not of format version 2 (older formats are not read)",
    BAD_COUNT: "a record batch claims more records than its bytes can hold",
    BAD_RECORD: "the lengths of its records do not add up",
    BAD_OFFSET: "the offsets of its records do not grow, or leave those that its header claims",
}


@njit(types.UniTuple(int64, 3)(BYTES_IN, TABLE), cache=True, nogil=True)
def scan(data: Any, table: Any) -> Any:
    """One row per whole batch. Returns (batches, bytes used, problem). A cut last batch is ordinary and left over."""
    base = address(data)
    at, found, size = 0, 0, len(data)
    while at + 17 <= size:
        here = base + at
        if load8(here + 16) != 2:
            return found, at, BAD_MAGIC
        length = load_be32(here + 8)
        if length < HEADER_BYTES - 12:
            return found, at, BAD_LENGTH
        if at + 12 + length > size:
            break
        last_delta, count = load_be32(here + 23), load_be32(here + 57)
        if count < 0 or last_delta < 0:
            return found, at, BAD_COUNT
        table[found, AT] = at
        table[found, FROM] = at + HEADER_BYTES
        table[found, TO] = at + 12 + length
        table[found, WHERE] = 0
        table[found, BASE_OFFSET] = load_be64(here)
        table[found, LAST_OFFSET] = load_be64(here) + last_delta
        table[found, BASE_TIME] = load_be64(here + 27)
        table[found, MAX_TIME] = load_be64(here + 35)
        table[found, ATTRIBUTES] = load_be16(here + 21)
        table[found, PRODUCER_ID] = load_be64(here + 43)
        table[found, COUNT] = count
        table[found, SKIP] = 0
        table[found, EPOCH] = load_be32(here + 12)
        found += 1
        at += 12 + length
    return found, at, OK


# What `fill` writes to, as addresses.
KEY_ENDS, KEYS, KEY_VALID, VALUE_ENDS, VALUES, VALUE_VALID, OFFSETS, TIMES, TIME_TYPES, HEADER_AT = range(10)


@njit(types.UniTuple(int64, 6)(int64, int64, TABLE, int64, int64, LONGS), cache=True, nogil=True)
def fill(data: Any, unpacked: Any, table: Any, first: Any, stop: Any, out: Any) -> Any:
    """Rows with first <= offset < stop. Returns (rows, key nulls, value nulls, headers, problem, batch).

    KEYS and VALUES of `out` are as large as all the records together, so a checked length always fits.
    HEADER_AT gets where a row's headers stand, or is 0 when nobody asks for them.
    """
    keys, values, header_at = out[KEYS], out[VALUES], out[HEADER_AT]
    key_ends, value_ends, key_valid, value_valid = out[KEY_ENDS], out[VALUE_ENDS], out[KEY_VALID], out[VALUE_VALID]
    offsets, times, time_types = out[OFFSETS], out[TIMES], out[TIME_TYPES]
    row, key_at, value_at, key_nulls, value_nulls, headers = 0, 0, 0, 0, 0, 0
    for number in range(len(table)):
        if table[number, SKIP]:
            continue
        base = unpacked if table[number, WHERE] else data
        at, end = base + table[number, FROM], base + table[number, TO]
        base_offset, base_time = table[number, BASE_OFFSET], table[number, BASE_TIME]
        append_time = (table[number, ATTRIBUTES] & LOG_APPEND_TIME) != 0
        before, last_offset = base_offset - 1, table[number, LAST_OFFSET]
        for _ in range(table[number, COUNT]):
            length, at = read_varint(at, end)
            if at < 0 or length < 1 or length > end - at:
                return row, key_nulls, value_nulls, headers, BAD_RECORD, number
            record_end = at + length
            time_delta, at = read_varint(at + 1, record_end)
            if at < 0:
                return row, key_nulls, value_nulls, headers, BAD_RECORD, number
            offset_delta, at = read_varint(at, record_end)
            if at < 0:
                return row, key_nulls, value_nulls, headers, BAD_RECORD, number
            key_size, at = read_varint(at, record_end)
            if at < 0 or key_size > record_end - at:
                return row, key_nulls, value_nulls, headers, BAD_RECORD, number
            key_from = at
            value_size, at = read_varint(at + max(key_size, 0), record_end)
            if at < 0 or value_size > record_end - at:
                return row, key_nulls, value_nulls, headers, BAD_RECORD, number
            offset = base_offset + offset_delta
            if offset <= before or offset > last_offset:
                return row, key_nulls, value_nulls, headers, BAD_OFFSET, number
            before = offset
            if first <= offset and offset < stop:
                if key_size >= 0:
                    copy(keys + key_at, key_from, key_size)
                    key_at += key_size
                    set_bit(key_valid, row)
                else:
                    key_nulls += 1
                if value_size >= 0:
                    copy(values + value_at, at, value_size)
                    value_at += value_size
                    set_bit(value_valid, row)
                else:
                    value_nulls += 1
                store_i32(key_ends + 4 * row + 4, key_at)
                store_i32(value_ends + 4 * row + 4, value_at)
                store_i64(offsets + 8 * row, offset)
                moment = table[number, MAX_TIME] if append_time else base_time + time_delta
                store_i64(times + 8 * row, moment * 1000)
                store_i32(time_types + 4 * row, 1 if append_time else 0)
                if header_at != 0:
                    count, at = read_varint(at + max(value_size, 0), record_end)
                    if at < 0 or count < 0 or count > record_end - at:
                        return row, key_nulls, value_nulls, headers, BAD_RECORD, number
                    store_i64(header_at + 24 * row, at)
                    store_i64(header_at + 24 * row + 8, record_end)
                    store_i64(header_at + 24 * row + 16, count)
                    headers += count
                row += 1
            at = record_end
        if at != end:
            return row, key_nulls, value_nulls, headers, BAD_RECORD, number
    return row, key_nulls, value_nulls, headers, OK, 0


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
    unpacked: Any
    """The records of the compressed batches among them."""


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
    return Decoded(*_columns(source, unpacked, table, start, end, headers, where), unpacked)


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
    header_at = np.empty((most, 3), np.int64) if headers else None
    key_ends[0] = value_ends[0] = 0
    written = (key_ends, keys, key_valid, value_ends, values, value_valid, offsets, times, time_types, header_at)
    addresses = np.array([0 if part is None else part.ctypes.data for part in written], np.int64)
    rows, key_nulls, value_nulls, header_count, problem, number = fill(
        source.ctypes.data, unpacked.ctypes.data, table, start, end, addresses
    )
    if problem:
        raise corrupt(problem, where, int(table[number, AT]), int(table[number, BASE_OFFSET]))
    columns = {
        "key": _binary(rows, key_ends, keys, key_valid, key_nulls),
        "value": _binary(rows, value_ends, values, value_valid, value_nulls),
        "offset": pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offsets)], 0),
        "timestamp": pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, pa.py_buffer(times)], 0),
        "timestampType": pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(time_types)], 0),
    }
    if header_at is not None:
        columns["headers"] = headers_column(header_at[:rows], header_count, where)
    return rows, columns


def _binary(rows: int, ends: Any, data: Any, valid: Any, nulls: int) -> Any:
    used = int(ends[rows])
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(ends), pa.py_buffer(data[:used])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def corrupt(problem: int, where: str, at: int, base_offset: int | None) -> CorruptLogError:
    spot = f"byte {at} of the fetch" if base_offset is None else f"the batch at offset {base_offset}"
    return CorruptLogError(f"{where}: {PROBLEMS[problem]} ({spot}). Nothing of this fetch was used.")
