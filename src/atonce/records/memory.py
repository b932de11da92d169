"""Raw memory access for the compiled codec: block copies, unaligned big-endian numbers, varints.

Nothing here checks bounds; callers do, before each call (see `columns.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
"""A read-only byte array: Arrow's and the network's buffers."""
BYTES = types.Array(types.uint8, 1, "C")
INTS = types.Array(types.int32, 1, "C")
INTS_IN = types.Array(types.int32, 1, "C", readonly=True)
LONGS_IN = types.Array(types.int64, 1, "C", readonly=True)
LONGS = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    struct = context.make_array(array_type)(context, builder, array)
    return builder.gep(struct.data, [index])


@intrinsic
def copy(typing_context: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """`target[at : at + size] = source[start : start + size]`, as one memcpy."""
    if not (isinstance(target, types.Array) and isinstance(source, types.Array)):
        raise TypingError("copy works on arrays")
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, origin, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


def _load(bits: int, swap: bool) -> Any:
    @intrinsic
    def load(typing_context: Any, source: Any, at: Any) -> Any:
        signature = types.int64(source, types.int64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            whole = ir.IntType(bits)
            value = builder.load(builder.bitcast(pointer, whole.as_pointer()), align=1)
            if swap:
                value = builder.bswap(value)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return signature, codegen

    return load


def _store(bits: int) -> Any:
    @intrinsic
    def store(typing_context: Any, target: Any, at: Any, value: Any) -> Any:
        signature = types.void(target, types.int64, types.int64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            whole = ir.IntType(bits)
            value = args[2] if bits == 64 else builder.trunc(args[2], whole)
            builder.store(builder.bswap(value), builder.bitcast(pointer, whole.as_pointer()), align=1)
            return context.get_dummy_value()

        return signature, codegen

    return store


# Big-endian, as on Kafka's wire; signed. `load_le32` is what murmur2 reads.
load16, load32, load64 = _load(16, True), _load(32, True), _load(64, True)
load_le32 = _load(32, False)
store16, store32, store64 = _store(16), _store(32), _store(64)


@njit(inline="always")
def varint_size(value: Any) -> Any:
    folded = (value << 1) ^ (value >> 63)
    size = 1
    while folded > 127 or folded < 0:
        folded = np.int64(np.uint64(folded) >> np.uint64(7))
        size += 1
    return size


@njit(inline="always")
def put_varint(target: Any, at: Any, value: Any) -> Any:
    folded = np.uint64((value << 1) ^ (value >> 63))
    while folded > np.uint64(127):
        target[at] = np.uint8((folded & np.uint64(127)) | np.uint64(128))
        at += 1
        folded = folded >> np.uint64(7)
    target[at] = np.uint8(folded)
    return at + 1


@njit(inline="always")
def read_varint(data: Any, at: Any, end: Any) -> Any:
    """(value, next position); the position is -1 when the bytes end too early or the number is too long."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.uint64(data[at])
    at += 1
    folded = byte & np.uint64(127)
    shift = np.uint64(7)
    while byte > np.uint64(127):
        if at >= end or shift > np.uint64(63):
            return np.int64(0), np.int64(-1)
        byte = np.uint64(data[at])
        at += 1
        folded |= (byte & np.uint64(127)) << shift
        shift += np.uint64(7)
    return np.int64(folded >> np.uint64(1)) ^ -np.int64(folded & np.uint64(1)), at
