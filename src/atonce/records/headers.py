"""Record headers as an Arrow column: list<struct<key string, value binary>>. Only decoded when somebody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import int64, njit, types

from atonce.errors import CorruptLogError
from atonce.records.memory import BYTES, BYTES_IN, INTS, LONGS, copy, read_varint

# The names and nullability that Spark gives array<struct<key string, value binary>>.
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))


@njit(
    types.UniTuple(int64, 2)(BYTES_IN, BYTES_IN, LONGS, int64, INTS, INTS, BYTES, INTS, BYTES, BYTES),
    cache=True,
    nogil=True,
)
def _fill_headers(
    data: Any,
    unpacked: Any,
    header_at: Any,
    rows: Any,
    row_ends: Any,
    key_ends: Any,
    keys: Any,
    value_ends: Any,
    values: Any,
    valid: Any,
) -> Any:
    """Returns (value nulls, row that does not add up or -1)."""
    number, key_at, value_at, nulls = 0, 0, 0, 0
    row_ends[0] = 0
    key_ends[0] = 0
    value_ends[0] = 0
    for row in range(rows):
        source = unpacked if header_at[row * 4] else data
        at, end, count = header_at[row * 4 + 1], header_at[row * 4 + 2], header_at[row * 4 + 3]
        for _ in range(count):
            key_size, at = read_varint(source, at, end)
            if at < 0 or key_size < 0 or key_size > end - at:
                return nulls, row
            copy(keys, key_at, source, at, key_size)
            key_at += key_size
            value_size, at = read_varint(source, at + key_size, end)
            if at < 0 or value_size > end - at:
                return nulls, row
            if value_size >= 0:
                copy(values, value_at, source, at, value_size)
                value_at += value_size
                at += value_size
                valid[number >> 3] |= np.uint8(1 << (number & 7))
            else:
                nulls += 1
            number += 1
            key_ends[number] = key_at
            value_ends[number] = value_at
        row_ends[row + 1] = number
    return nulls, -1


def headers_column(data: Any, unpacked: Any, header_at: Any, rows: int, count: int, where: str) -> Any:
    """`header_at` holds four numbers per row: which buffer, from, to, how many headers."""
    spans = header_at[: rows * 4].reshape(rows, 4)
    size = int((spans[:, 2] - spans[:, 1]).sum())
    row_ends = np.empty(rows + 1, np.int32)
    key_ends, value_ends = np.empty(count + 1, np.int32), np.empty(count + 1, np.int32)
    keys, values, valid = np.empty(size, np.uint8), np.empty(size, np.uint8), np.zeros((count + 7) // 8, np.uint8)
    nulls, bad = _fill_headers(data, unpacked, header_at, rows, row_ends, key_ends, keys, value_ends, values, valid)
    if bad >= 0:
        raise CorruptLogError(f"{where}: the headers of row {bad} of the fetch do not add up. Nothing of it was used.")
    names = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(key_ends), pa.py_buffer(keys[: int(key_ends[count])])], 0
    )
    try:
        names.validate(full=True)  # header names are text: bytes that are not UTF-8 must not reach Spark
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"{where}: a header's name is not UTF-8 ({error}). Nothing of the fetch was used."
        ) from None
    contents = pa.Array.from_buffers(
        pa.binary(),
        count,
        [
            pa.py_buffer(valid) if nulls else None,
            pa.py_buffer(value_ends),
            pa.py_buffer(values[: int(value_ends[count])]),
        ],
        nulls,
    )
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADER))
    return pa.Array.from_buffers(HEADERS, rows, [None, pa.py_buffer(row_ends)], 0, children=[pairs])
