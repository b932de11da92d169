"""Which partition a record goes to: Kafka's murmur2 (as Java producers), crc32 (as librdkafka), or a column's word.

Rows without a key are spread by their position in the input, round robin: the same input gives the same partitions
again, which a batch that is run a second time depends on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import int64, njit, types, uint32

from atonce.errors import UndeliverableRow, UsageError
from atonce.records.memory import BYTES_IN, INTS, INTS_IN, load_le32

PARTITIONERS = ("murmur2", "crc32")


@njit(uint32(BYTES_IN, int64, int64), cache=True, nogil=True)
def murmur2(data: Any, at: Any, size: Any) -> Any:
    """Java's `Utils.murmur2`, all 32 bits."""
    mix = np.uint32(0x5BD1E995)
    hashed = np.uint32(0x9747B28C) ^ np.uint32(size)
    end = at + (size & ~3)
    while at < end:
        word = np.uint32(load_le32(data, at)) * mix
        word = np.uint32(word)
        word = np.uint32((word ^ (word >> np.uint32(24))) * mix)
        hashed = np.uint32(np.uint32(hashed * mix) ^ word)
        at += 4
    left = size & 3
    if left == 3:
        hashed ^= np.uint32(data[at + 2]) << np.uint32(16)
    if left >= 2:
        hashed ^= np.uint32(data[at + 1]) << np.uint32(8)
    if left >= 1:
        hashed ^= np.uint32(data[at])
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


@njit(uint32(BYTES_IN, int64, int64), cache=True, nogil=True)
def crc32(data: Any, at: Any, size: Any) -> Any:
    """zlib's crc32, as librdkafka's `consistent` partitioners."""
    value = np.uint32(0xFFFFFFFF)
    for position in range(at, at + size):
        value = CRC_TABLE[(value ^ np.uint32(data[position])) & np.uint32(255)] ^ (value >> np.uint32(8))
    return np.uint32(value ^ np.uint32(0xFFFFFFFF))


@njit(types.void(INTS_IN, BYTES_IN, BYTES_IN, int64, int64, int64, int64, types.boolean, INTS), cache=True, nogil=True)
def _assign(
    ends: Any, data: Any, valid: Any, skipped: Any, rows: Any, partitions: Any, position: Any, java: Any, out: Any
) -> None:
    has_nulls = len(valid) > 0
    for row in range(rows):
        bit = row + skipped
        at, size = np.int64(ends[row]), np.int64(ends[row + 1]) - np.int64(ends[row])
        # librdkafka treats an empty key as none; Java hashes it.
        if (has_nulls and not (valid[bit >> 3] >> (bit & 7)) & 1) or (size == 0 and not java):
            out[row] = (position + row) % partitions
        elif java:
            out[row] = np.int64(murmur2(data, at, size) & np.uint32(0x7FFFFFFF)) % partitions
        else:
            out[row] = np.int64(crc32(data, at, size)) % partitions


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
        ends, data, valid, skipped = binary_buffers(keys)
        _assign(ends, data, valid, skipped, rows, n_partitions, position, partitioner == "murmur2", out)
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


def binary_buffers(column: Any) -> tuple[Any, Any, Any, int]:
    """(offsets, data, validity bytes or empty, bit offset of row 0) of a binary or string array, without copies."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        try:
            column = column.cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise UsageError(f"a column of type {column.type} is neither binary nor string; cast it first") from None
    validity, ends, data = column.buffers()
    offsets = (
        np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
        if ends
        else np.zeros(1, np.int32)
    )
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    bits = np.frombuffer(validity, np.uint8) if validity is not None and column.null_count else np.empty(0, np.uint8)
    return offsets, bytes_, bits, column.offset
