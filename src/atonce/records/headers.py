"""Record headers as an Arrow column: list<struct<key string, value binary>>. Only decoded when somebody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import int64, njit, types

from atonce.errors import CorruptLogError
from atonce.records.memory import LONGS, TABLE, copy, read_varint, set_bit, store_i32

# The names and nullability that Spark gives array<struct<key string, value binary>>.
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))


# What `fill_headers` writes to, as addresses.
ROW_ENDS, NAME_ENDS, NAMES, VALUE_ENDS, VALUES, VALUE_VALID = range(6)


@njit(types.UniTuple(int64, 2)(TABLE, LONGS), cache=True, nogil=True)
def fill_headers(spans: Any, out: Any) -> Any:
    """`spans`: per row the addresses where its headers begin and end, and how many. Returns (nulls, bad row or -1)."""
    row_ends, name_ends, names = out[ROW_ENDS], out[NAME_ENDS], out[NAMES]
    value_ends, values, value_valid = out[VALUE_ENDS], out[VALUES], out[VALUE_VALID]
    number, name_at, value_at, nulls = 0, 0, 0, 0
    for row in range(len(spans)):
        at, end = spans[row, 0], spans[row, 1]
        for _ in range(spans[row, 2]):
            name_size, at = read_varint(at, end)
            if at < 0 or name_size < 0 or name_size > end - at:
                return nulls, row
            copy(names + name_at, at, name_size)
            name_at += name_size
            value_size, at = read_varint(at + name_size, end)
            if at < 0 or value_size > end - at:
                return nulls, row
            if value_size >= 0:
                copy(values + value_at, at, value_size)
                value_at += value_size
                at += value_size
                set_bit(value_valid, number)
            else:
                nulls += 1
            number += 1
            store_i32(name_ends + 4 * number, name_at)
            store_i32(value_ends + 4 * number, value_at)
        store_i32(row_ends + 4 * row + 4, number)
    return nulls, -1


def headers_column(spans: Any, count: int, where: str) -> Any:
    """The column for rows whose headers lie at `spans`. The memory behind those addresses is the caller's to keep."""
    size = int((spans[:, 1] - spans[:, 0]).sum())
    row_ends = np.zeros(len(spans) + 1, np.int32)
    name_ends, value_ends = np.zeros(count + 1, np.int32), np.zeros(count + 1, np.int32)
    names, values, valid = np.empty(size, np.uint8), np.empty(size, np.uint8), np.zeros((count + 7) // 8, np.uint8)
    written = (row_ends, name_ends, names, value_ends, values, valid)
    nulls, bad = fill_headers(spans, np.array([part.ctypes.data for part in written], np.int64))
    if bad >= 0:
        raise CorruptLogError(f"{where}: the headers of row {bad} of the fetch do not add up. Nothing of it was used.")
    texts = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(name_ends), pa.py_buffer(names[: int(name_ends[count])])], 0
    )
    try:
        texts.validate(full=True)  # header names are text: bytes that are not UTF-8 must not reach Spark
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
    pairs = pa.StructArray.from_arrays([texts, contents], fields=list(HEADER))
    return pa.Array.from_buffers(HEADERS, len(spans), [None, pa.py_buffer(row_ends)], 0, children=[pairs])
