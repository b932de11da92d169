"""Arrow columns → PostgreSQL's binary COPY format, compiled, column by column: no Python object per row.

A row is int16 column count, then per column int32 length (-1 for null) and the value in network byte order. All row
starts are computed first (one cumulative sum), then each column writes its values at its own place in every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from atonce.connectors.sql.postgres.kernels import (
    hex_to_uuid,
    numeric_from_digits,
    write_bytes,
    write_counts,
    write_fixed,
)
from atonce.connectors.sql.postgres.types import Column
from atonce.errors import InvariantError

HEADER = b"PGCOPY\n\xff\r\n\x00" + b"\x00" * 8
TRAILER = b"\xff\xff"

_NO_NULLS = np.empty(0, np.uint8)
_EPOCH_DAYS = 10_957
"""Days from 1970 to 2000: PostgreSQL counts from there."""
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
_INTEGER_WIDTH = {"bool": 1, "int2": 2, "int4": 4, "int8": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wire:
    """One column ready to be written: fixed-width integers, or offsets into bytes with an optional prefix."""

    valid: Any
    width: int = 0
    values: Any = None
    offsets: Any = None
    data: Any = None
    prefix: int = -1
    """One byte before each value (jsonb's version), or -1."""


def encode(arrays: Sequence[Any], columns: Sequence[Column]) -> Any:
    """Rows of the COPY stream (without header and trailer), as one uint8 array."""
    rows = len(arrays[0]) if arrays else 0
    if rows == 0:
        return np.empty(0, np.uint8)
    wires = [to_wire(array, column) for array, column in zip(arrays, columns, strict=True)]
    sizes = np.full(rows, 2 + 4 * len(wires), np.int64)
    for wire in wires:
        sizes += _value_sizes(wire, rows)
    ends = np.cumsum(sizes)
    at = ends - sizes
    out = np.empty(int(ends[-1]), np.uint8)
    write_counts(out, at, len(wires))
    for wire in wires:
        if wire.width:
            write_fixed(out, at, wire.values, wire.width, wire.valid)
        else:
            write_bytes(out, at, wire.offsets, wire.data, wire.prefix, wire.valid)
    if not np.array_equal(at, ends):
        raise InvariantError("a COPY row does not end where it should: the encoder computed a wrong size")
    return out


def to_wire(array: Any, column: Column) -> _Wire:
    """The column's values as PostgreSQL's `recv` function of that type wants them."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    valid = valid_rows(array)
    wire = column.wire
    if wire in _INTEGER_WIDTH:
        return _Wire(valid=valid, width=_INTEGER_WIDTH[wire], values=_integers(array))
    if wire == "date":
        return _Wire(valid=valid, width=4, values=_integers(array.cast(pa.int32())) - _EPOCH_DAYS)
    if wire in ("timestamp", "timestamptz"):
        micros = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
        return _Wire(valid=valid, width=8, values=_integers(micros) - _EPOCH_US)
    if wire in ("float4", "float8"):
        kind, bits = (np.float32, np.int32) if wire == "float4" else (np.float64, np.int64)
        floats = array.fill_null(0).to_numpy(zero_copy_only=False).astype(kind)
        return _Wire(valid=valid, width=4 if wire == "float4" else 8, values=floats.view(bits).astype(np.int64))
    if wire == "numeric":
        return _numeric(array, valid)
    offsets, data = string_buffers(array)
    if wire == "uuid":
        uuids, _ = hex_to_uuid(offsets, data, valid)
        return _Wire(valid=valid, offsets=np.arange(len(array) + 1, dtype=np.int64) * 16, data=uuids)
    return _Wire(valid=valid, offsets=offsets, data=data, prefix=1 if wire == "jsonb" else -1)


def valid_rows(array: Any) -> Any:
    """One byte per row, 0 for null; an empty array when nothing is null."""
    if array.null_count == 0:
        return _NO_NULLS
    return array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)


def string_buffers(array: Any) -> tuple[Any, Any]:
    """Offsets (int64) and bytes of a string or binary array."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = array.buffers()
    found = np.frombuffer(offsets, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    return found.astype(np.int64), np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _integers(array: Any) -> Any:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    return array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _numeric(array: Any, valid: Any) -> _Wire:
    """Decimals by way of their unscaled digits: exact for all 38 of them."""
    kind = array.type
    if pa.types.is_decimal(kind):
        scale = kind.scale
        if not pa.types.is_decimal128(kind):
            array = array.cast(pa.decimal128(38, scale))
        # The same bytes read with scale 0 are the unscaled integers; their text has no exponent.
        unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
        digits = unscaled.cast(pa.string())
    else:
        scale, digits = 0, array.cast(pa.string())
    offsets, data = string_buffers(digits)
    ends, packed = numeric_from_digits(offsets, data, valid, scale)
    return _Wire(valid=valid, offsets=ends, data=packed)


def _value_sizes(wire: _Wire, rows: int) -> Any:
    if wire.width:
        sizes = np.full(rows, wire.width, np.int64)
    else:
        sizes = np.diff(wire.offsets) + (1 if wire.prefix >= 0 else 0)
    return np.where(wire.valid, sizes, 0) if len(wire.valid) else sizes
