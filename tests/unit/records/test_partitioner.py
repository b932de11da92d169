"""Partitions as Java and librdkafka choose them, and a spread of keyless rows that can be repeated."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from atonce.errors import UndeliverableRow, UsageError
from atonce.records.partitioner import assign, murmur2

# From the unit tests of Kafka's own clients (Utils.murmur2).
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_murmur2_is_that_of_java() -> None:
    for key, expected in JAVA.items():
        data = np.frombuffer(key, np.uint8)
        found = int(murmur2(data.ctypes.data, len(key)))
        assert found - (1 << 32 if found >> 31 else 0) == expected


def test_keyed_rows_go_where_java_sends_them() -> None:
    keys = pa.array([*JAVA, b""])
    hashes = [*JAVA.values(), 275646681]
    assert assign(keys, 7).tolist() == [(value & 0x7FFFFFFF) % 7 for value in hashes]


def test_crc32_is_that_of_librdkafka() -> None:
    keys = [f"key-{i}".encode() for i in range(100)]
    assert assign(pa.array(keys), 7, partitioner="crc32").tolist() == [zlib.crc32(key) % 7 for key in keys]


def test_rows_without_a_key_are_spread_by_their_position() -> None:
    keys = pa.nulls(8, pa.binary())
    assert assign(keys, 3, position=4).tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
    assert assign(keys, 3, position=4).tolist() == assign(keys, 3, position=4).tolist()
    assert assign(pa.array([b"", b"x"]), 5, partitioner="crc32", position=2).tolist() == [2, zlib.crc32(b"x") % 5]


def test_a_slice_is_read_from_its_own_rows() -> None:
    keys = pa.array([None, b"a", None, b"b", b"c", None, b"d"] * 5)
    whole = assign(keys, 4).tolist()
    part = assign(keys.slice(11, 13), 4, position=11).tolist()
    assert part == whole[11:24]


def test_text_keys_count_as_their_bytes() -> None:
    assert assign(pa.array(["abc", "é"]), 9).tolist() == assign(pa.array([b"abc", "é".encode()]), 9).tolist()


def test_an_explicit_partition_wins_and_null_means_by_key() -> None:
    keys = pa.array([b"a", b"b", b"c"])
    by_key = assign(keys, 4).tolist()
    found = assign(keys, 4, explicit=pa.array([3, None, 0], pa.int32())).tolist()
    assert found == [3, by_key[1], 0]


def test_an_explicit_partition_out_of_range_names_its_row() -> None:
    with pytest.raises(UndeliverableRow, match="row 1: `partition` is 9, but the topic has partitions 0 to 3"):
        assign(pa.array([b"a", b"b"]), 4, explicit=pa.array([0, 9]))


def test_an_unknown_partitioner_is_refused() -> None:
    with pytest.raises(UsageError, match="'random' is not one of: murmur2, crc32"):
        assign(pa.array([b"a"]), 4, partitioner="random")
