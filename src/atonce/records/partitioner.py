"""Which partition a record goes to: Kafka's murmur2 (as Java producers), crc32 (as librdkafka), or a column's word.

Rows without a key are spread by their position in the input, round robin: the same input gives the same partitions
again, which a batch that is run a second time depends on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, njit, types, uint32

from atonce.errors import UndeliverableRow, UsageError
from atonce.records.arrow import binary_column
from atonce.records.memory import INTS, bit_is_set, load8, load_i32

PARTITIONERS = ("murmur2", "crc32")


@njit(uint32(int64, int64), cache=True, nogil=True)
def murmur2(at: Any, size: Any) -> Any:
    """Java's `Utils.murmur2` of the bytes at an address, all 32 bits."""
    mix = np.uint32(0x5BD1E995)
    hashed = np.uint32(0x9747B28C) ^ np.uint32(size)
    end = at + (size & ~3)
    while at < end:
        word = np.uint32(np.uint32(load_i32(at)) * mix)
        word = np.uint32((word ^ (word >> np.uint32(24))) * mix)
        hashed = np.uint32(np.uint32(hashed * mix) ^ word)
        at += 4
    left = size & 3
    if left == 3:
        hashed ^= np.uint32(load8(at + 2)) << np.uint32(16)
    if left >= 2:
        hashed ^= np.uint32(load8(at + 1)) << np.uint32(8)
    if left >= 1:
        hashed ^= np.uint32(load8(at))
        hashed = np.uint32(hashed * mix)
    hashed ^= hashed >> np.uint32(13)
    hashed = np.uint32(hashed * mix)
    return np.uint32(hashed ^ (hashed >> np.uint32(15)))


def _crc_table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


CRC_TABLE = _crc_table()


@njit(uint32(int64, int64), cache=True, nogil=True)
def crc32(at: Any, size: Any) -> Any:
    """zlib's crc32 of the bytes at an address, as librdkafka's `consistent` partitioners."""
    value = np.uint32(0xFFFFFFFF)
    for position in range(at, at + size):
        value = CRC_TABLE[(value ^ np.uint32(load8(position))) & np.uint32(255)] ^ (value >> np.uint32(8))
    return np.uint32(value ^ np.uint32(0xFFFFFFFF))


@njit(types.void(int64, int64, int64, int64, int64, int64, types.boolean, INTS), cache=True, nogil=True)
def _assign(ends: Any, data: Any, valid: Any, bit: Any, partitions: Any, position: Any, java: Any, out: Any) -> None:
    for row in range(len(out)):
        begin = load_i32(ends + 4 * row)
        size = load_i32(ends + 4 * row + 4) - begin
        # librdkafka treats an empty key as none; Java hashes it.
        if (valid != 0 and not bit_is_set(valid, row + bit)) or (size == 0 and not java):
            out[row] = (position + row) % partitions
        elif java:
            out[row] = np.int64(murmur2(data + begin, size) & np.uint32(0x7FFFFFFF)) % partitions
        else:
            out[row] = np.int64(crc32(data + begin, size)) % partitions


def assign(
    keys: Any, n_partitions: int, *, partitioner: str = "murmur2", position: int = 0, explicit: Any = None
) -> Any:
    """Target partition per row (int32). `keys`: binary array. `explicit`: int array; null in it means "by key"."""
    if partitioner not in PARTITIONERS:
        raise UsageError(f"partitioner {partitioner!r} is not one of: {', '.join(PARTITIONERS)}")
    if n_partitions < 1:
        raise UsageError(f"a topic has at least one partition, got {n_partitions}")
    rows = len(keys)
    out = np.empty(rows, np.int32)
    if rows:
        column = binary_column(keys)
        _assign(*column.numbers, n_partitions, position, partitioner == "murmur2", out)
    if explicit is not None:
        _overrule(out, explicit, n_partitions)
    return out


def _overrule(out: Any, explicit: Any, n_partitions: int) -> None:
    given = np.asarray(explicit.is_valid())
    wanted = explicit.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = given & ((wanted < 0) | (wanted >= n_partitions))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UndeliverableRow(
            f"row {row}: `partition` is {int(wanted[row])}, but the topic has partitions 0 to {n_partitions - 1}"
        )
    np.copyto(out, wanted.astype(np.int32), where=given)
