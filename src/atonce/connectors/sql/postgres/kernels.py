"""The compiled inner loops of the COPY encoder. Arrays in, arrays out; every loop runs without the interpreter lock."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, njit, types, uint8

BYTES = types.Array(uint8, 1, "C")
BYTES_IN = types.Array(uint8, 1, "C", readonly=True)
INTS = types.Array(int64, 1, "C")
INTS_IN = types.Array(int64, 1, "C", readonly=True)

OK, BAD_UTF8, NUL_BYTE, TOO_LONG = 0, 1, 2, 3


@njit(types.void(BYTES, INTS, int64), cache=True, nogil=True)
def write_counts(out: Any, at: Any, columns: int) -> None:
    for i in range(len(at)):
        out[at[i]] = columns >> 8
        out[at[i] + 1] = columns & 255
        at[i] += 2


@njit(types.void(BYTES, INTS, INTS_IN, int64, BYTES_IN), cache=True, nogil=True)
def write_fixed(out: Any, at: Any, values: Any, width: int, valid: Any) -> None:
    nulls = len(valid) > 0
    for i in range(len(at)):
        p = at[i]
        if nulls and not valid[i]:
            out[p : p + 4] = 255
            at[i] = p + 4
            continue
        out[p : p + 3] = 0
        out[p + 3] = width
        value = values[i]
        for b in range(width):
            out[p + 4 + b] = (value >> (8 * (width - 1 - b))) & 255
        at[i] = p + 4 + width


@njit(types.void(BYTES, INTS, INTS_IN, BYTES_IN, int64, BYTES_IN), cache=True, nogil=True)
def write_bytes(out: Any, at: Any, offsets: Any, data: Any, prefix: int, valid: Any) -> None:
    nulls = len(valid) > 0
    extra = 1 if prefix >= 0 else 0
    for i in range(len(at)):
        p = at[i]
        if nulls and not valid[i]:
            out[p : p + 4] = 255
            at[i] = p + 4
            continue
        begin = offsets[i]
        size = offsets[i + 1] - begin
        total = size + extra
        for b in range(4):
            out[p + b] = (total >> (24 - 8 * b)) & 255
        p += 4
        if extra:
            out[p] = prefix
            p += 1
        out[p : p + size] = data[begin : begin + size]
        at[i] = p + size


@njit(int64(BYTES_IN, int64, int64), cache=True, nogil=True)
def _utf8_length(data: Any, begin: int, end: int) -> int:
    """Characters in well-formed UTF-8 without NUL; -1 when malformed, -2 when a NUL byte is in it."""
    i = begin
    chars = 0
    while i < end:
        c = data[i]
        chars += 1
        if c < 0x80:
            if c == 0:
                return -2
            i += 1
            continue
        if c < 0xC2 or c > 0xF4:
            return -1
        more = 1 if c < 0xE0 else (2 if c < 0xF0 else 3)
        if i + more >= end:
            return -1
        second = data[i + 1]
        # Overlong forms, surrogates and values above U+10FFFF show in the second byte.
        if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F):
            return -1
        if (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F):
            return -1
        for b in range(1, more + 1):
            if data[i + b] & 0xC0 != 0x80:
                return -1
        i += more + 1
    return chars


@njit(BYTES(INTS_IN, BYTES_IN, BYTES_IN, int64), cache=True, nogil=True)
def check_text(offsets: Any, data: Any, valid: Any, max_chars: int) -> Any:
    """Per row: OK, BAD_UTF8, NUL_BYTE or TOO_LONG (`max_chars` below 0: no limit)."""
    rows = len(offsets) - 1
    found = np.zeros(rows, np.uint8)
    nulls = len(valid) > 0
    for i in range(rows):
        if nulls and not valid[i]:
            continue
        chars = _utf8_length(data, offsets[i], offsets[i + 1])
        if chars == -1:
            found[i] = BAD_UTF8
        elif chars == -2:
            found[i] = NUL_BYTE
        elif max_chars >= 0 and chars > max_chars:
            found[i] = TOO_LONG
    return found


@njit(types.UniTuple(BYTES, 2)(INTS_IN, BYTES_IN, BYTES_IN), cache=True, nogil=True)
def hex_to_uuid(offsets: Any, data: Any, valid: Any) -> tuple[Any, Any]:
    """Sixteen bytes per row, and per row whether it was a UUID (32 hexadecimal digits, hyphens between)."""
    rows = len(offsets) - 1
    out = np.zeros(rows * 16, np.uint8)
    good = np.ones(rows, np.uint8)
    nulls = len(valid) > 0
    for i in range(rows):
        if nulls and not valid[i]:
            continue
        digits = 0
        for p in range(offsets[i], offsets[i + 1]):
            c = data[p]
            if c == 45 and digits in (8, 12, 16, 20):
                continue
            if 48 <= c <= 57:
                value = c - 48
            elif 97 <= c <= 102:
                value = c - 87
            elif 65 <= c <= 70:
                value = c - 55
            else:
                digits = 99
                break
            if digits < 32:
                out[i * 16 + digits // 2] |= value if digits % 2 else value << 4
            digits += 1
        if digits != 32:
            good[i] = 0
    return out, good


@njit(int64(BYTES, int64, int64), cache=True, nogil=True)
def _put_u16(out: Any, at: int, value: int) -> int:
    out[at] = (value >> 8) & 255
    out[at + 1] = value & 255
    return at + 2


@njit(types.Tuple((INTS, BYTES))(INTS_IN, BYTES_IN, BYTES_IN, int64), cache=True, nogil=True)
def numeric_from_digits(offsets: Any, data: Any, valid: Any, scale: int) -> tuple[Any, Any]:
    """PostgreSQL's numeric: groups of four digits, aligned at the point, leading and trailing zero groups left out."""
    rows = len(offsets) - 1
    ends = np.zeros(rows + 1, np.int64)
    out = np.empty(rows * 34 + 8, np.uint8)
    pad = (4 - scale % 4) % 4
    fraction_groups = (scale + pad) // 4
    groups = np.zeros(14, np.int64)
    nulls = len(valid) > 0
    at = 0
    for i in range(rows):
        if nulls and not valid[i]:
            ends[i + 1] = at
            continue
        begin, end = offsets[i], offsets[i + 1]
        negative = data[begin] == 45
        if negative:
            begin += 1
        total = (end - begin + pad + 3) // 4
        groups[:] = 0
        position = pad
        for p in range(end - 1, begin - 1, -1):
            power = 1
            for _ in range(position % 4):
                power *= 10
            groups[total - 1 - position // 4] += (data[p] - 48) * power
            position += 1
        first, last = 0, total
        while first < last and groups[first] == 0:
            first += 1
        while last > first and groups[last - 1] == 0:
            last -= 1
        count = last - first
        weight = total - fraction_groups - 1 - first if count else 0
        sign = 0x4000 if negative and count else 0
        at = _put_u16(out, at, count)
        at = _put_u16(out, at, weight & 0xFFFF)
        at = _put_u16(out, at, sign)
        at = _put_u16(out, at, scale)
        for g in range(first, last):
            at = _put_u16(out, at, groups[g])
        ends[i + 1] = at
    return ends, out
