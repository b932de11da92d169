"""Raw memory access for the compiled codec: addresses instead of arrays, so that no loop counts references.

Nothing here checks bounds; callers do, before each call (see `columns.py`). Numbers are big-endian where the name says
so (`be`), as on Kafka's wire; Arrow's own offsets are native.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
"""A read-only byte array: Arrow's and the network's buffers."""
BYTES = types.Array(types.uint8, 1, "C")
INTS = types.Array(types.int32, 1, "C")
INTS_IN = types.Array(types.int32, 1, "C", readonly=True)
LONGS_IN = types.Array(types.int64, 1, "C", readonly=True)
LONGS = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")


@intrinsic
def address(typing_context: Any, array: Any) -> Any:
    """Where an array's data stands. The array must outlive every use of the address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(struct.data, ir.IntType(64))

    return types.int64(array), codegen


@intrinsic
def copy(typing_context: Any, to: Any, origin: Any, size: Any) -> Any:
    """`size` bytes from one address to another; they must not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _load(bits: int, *, swap: bool, signed: bool = True) -> Any:
    @intrinsic
    def load(typing_context: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            whole = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], whole.as_pointer()), align=1)
            if swap:
                value = builder.bswap(value)
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return types.int64(types.int64), codegen

    return load


def _store(bits: int, *, swap: bool) -> Any:
    @intrinsic
    def store(typing_context: Any, at: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            whole = ir.IntType(bits)
            value = args[1] if bits == 64 else builder.trunc(args[1], whole)
            if swap:
                value = builder.bswap(value)
            builder.store(value, builder.inttoptr(args[0], whole.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


load8 = _load(8, swap=False, signed=False)
load_i32, load_i64 = _load(32, swap=False), _load(64, swap=False)
load_be16, load_be32, load_be64 = _load(16, swap=True), _load(32, swap=True), _load(64, swap=True)
store8, store_i32, store_i64 = _store(8, swap=False), _store(32, swap=False), _store(64, swap=False)
store_be16, store_be32, store_be64 = _store(16, swap=True), _store(32, swap=True), _store(64, swap=True)


@njit(inline="always")
def bit_is_set(bits: Any, number: Any) -> Any:
    """In a bitmap as Arrow keeps validity."""
    return (load8(bits + (number >> 3)) >> (number & 7)) & 1 != 0


@njit(inline="always")
def set_bit(bits: Any, number: Any) -> None:
    at = bits + (number >> 3)
    store8(at, load8(at) | (1 << (number & 7)))


@njit(inline="always")
def varint_size(value: Any) -> Any:
    folded = np.uint64((value << 1) ^ (value >> 63))
    if folded < np.uint64(1 << 7):
        return 1
    if folded < np.uint64(1 << 14):
        return 2
    size = 3
    folded >>= np.uint64(21)
    while folded:
        folded >>= np.uint64(7)
        size += 1
    return size


@njit(inline="always")
def put_varint(at: Any, value: Any) -> Any:
    """The address after it."""
    folded = np.uint64((value << 1) ^ (value >> 63))
    while folded > np.uint64(127):
        store8(at, np.int64((folded & np.uint64(127)) | np.uint64(128)))
        at += 1
        folded >>= np.uint64(7)
    store8(at, np.int64(folded))
    return at + 1


@njit(inline="always")
def read_varint(at: Any, end: Any) -> Any:
    """(value, next address); the address is -1 when the bytes end too early or the number is too long."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.uint64(load8(at))
    at += 1
    folded = byte & np.uint64(127)
    shift = np.uint64(7)
    while byte > np.uint64(127):
        if at >= end or shift > np.uint64(63):
            return np.int64(0), np.int64(-1)
        byte = np.uint64(load8(at))
        at += 1
        folded |= (byte & np.uint64(127)) << shift
        shift += np.uint64(7)
    return np.int64(folded >> np.uint64(1)) ^ -np.int64(folded & np.uint64(1)), at
