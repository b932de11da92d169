"""Bytes that do not add up raise; they are never read out of bounds and never taken for records (F13)."""

from __future__ import annotations

import os
import struct

import cramjam
import crc32c
import numpy as np
import pytest

from atonce.errors import CorruptLogError
from atonce.records.columns import decode, locate
from atonce.records.encode import encode
from tests.unit.records.batches import EVERYTHING, marker, random_rows, rows_of, sealed


def batch(rows: int = 30, compression: str = "none") -> bytes:
    ((_, _, blob),) = encode(random_rows(rows, seed=5), np.zeros(rows, np.int32), 1, compression=compression)
    return sealed(blob)


def resealed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def test_a_flipped_bit_is_found_by_the_checksum_and_named() -> None:
    data = bytearray(batch())
    data[200] ^= 1
    with pytest.raises(
        CorruptLogError, match=r"orders/3: the checksum of the batch at offset 0 \(byte 0 of the fetch\)"
    ):
        decode(locate(bytes(data)), **EVERYTHING, where="orders/3")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_random_damage_with_a_right_checksum_never_reads_out_of_bounds(compression: str) -> None:
    seed = int(os.environ.get("ATONCE_SEED", "20"))
    print(f"replay: ATONCE_SEED={seed} pytest tests/unit/records/test_columns_malformed.py")
    rng = np.random.default_rng(seed)
    good, refused = batch(compression=compression), 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(int(rng.integers(1, 12))):
            data[int(rng.integers(21, len(data)))] = int(rng.integers(0, 256))
        try:
            found = decode(locate(resealed(data)), **EVERYTHING, headers=True)
            for column in found.columns.values():
                column.validate(full=True)
        except CorruptLogError:
            refused += 1
    assert refused > 50


def test_a_count_that_cannot_be_is_refused_before_memory_is_asked_for() -> None:
    data = bytearray(batch())
    struct.pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(CorruptLogError, match="more records than its bytes can hold"):
        decode(locate(resealed(data)), **EVERYTHING)


@pytest.mark.parametrize(("at", "value", "words"), [(16, 1, "format version 2"), (8, 0, "too small to hold")])
def test_a_wrong_header_is_refused(at: int, value: int, words: str) -> None:
    data = bytearray(batch())
    if at == 16:
        data[16] = value
    else:
        struct.pack_into(">i", data, at, value)
    with pytest.raises(CorruptLogError, match=words):
        locate(bytes(data))


def test_an_unknown_codec_is_refused() -> None:
    data = bytearray(batch())
    struct.pack_into(">h", data, 21, 6)
    with pytest.raises(CorruptLogError, match="cannot be unpacked"):
        decode(locate(resealed(data)), **EVERYTHING)


def test_a_small_batch_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atonce.records.columns.DEFAULT_LIMIT", 8 << 20)
    records = bytes(cramjam.zstd.compress(bytes(16 << 20), level=1))
    head = bytearray(batch()[:61])
    struct.pack_into(">i", head, 8, 49 + len(records))
    struct.pack_into(">h", head, 21, 4)
    with pytest.raises(CorruptLogError, match="allowed bytes"):
        decode(locate(resealed(head + bytearray(records))), **EVERYTHING)


def test_control_records_are_never_data() -> None:
    data = batch(30) + marker(30, producer_id=9, commit=True)
    located = locate(data)
    assert located.next_offset == 31
    assert len(rows_of(data)) == 30
