"""The four codecs: round trips, foreign framings, and bombs. Issue 4, Limits."""

from __future__ import annotations

import gzip
import random
import struct

import cramjam
import pyarrow
import pytest

from atonce.records.compression import XERIAL_HEADER, Compression, DecompressionFailed, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
SAMPLES = [b"", b"a", b"hello world " * 5000, random.Random(1).randbytes(100_000)]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", SAMPLES, ids=["empty", "one", "repeating", "random"])
def test_round_trip(codec: Compression, data: bytes) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert bytes(decompress(codec, kind(compress(codec, kind(data))))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stops_at_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(50_000_000))
    assert len(bomb) < 3_000_000
    with pytest.raises(DecompressionFailed, match="more than the 1000000 allowed bytes"):
        decompress(codec, bomb, limit=1_000_000)
    assert len(decompress(codec, bomb, limit=50_000_000)) == 50_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_refused(codec: Compression) -> None:
    rng = random.Random(2)
    for size in (1, 5, 40, 400):
        with pytest.raises(DecompressionFailed):
            decompress(codec, b"\xff" + rng.randbytes(size))


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_stream_is_refused(codec: Compression) -> None:
    whole = compress(codec, random.Random(3).randbytes(200_000))
    with pytest.raises(DecompressionFailed):
        decompress(codec, whole[: len(whole) // 2])


def test_raw_snappy_as_librdkafka_sends_it() -> None:
    data = b"hello " * 1000
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


def test_snappy_is_written_in_javas_framing() -> None:
    packed = compress(Compression.SNAPPY, b"x" * 100_000)
    assert packed.startswith(XERIAL_HEADER)
    (length,) = struct.unpack_from(">i", packed, len(XERIAL_HEADER))
    assert 0 < length < len(packed)


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 1000])
def test_a_snappy_block_longer_than_the_bytes_is_refused(length: int) -> None:
    with pytest.raises(DecompressionFailed, match="says"):
        decompress(Compression.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"abc")


def test_several_gzip_members_are_one_stream() -> None:
    assert bytes(decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"))) == b"one two"


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    flags = compress(Compression.LZ4, b"x" * 1000)[4]
    assert flags & 0x20, "block independence"
    assert flags >> 6 == 1, "version"


def test_names_are_kafkas() -> None:
    assert Compression.named("zstd") is Compression.ZSTD
    assert Compression.named("uncompressed") is Compression.NONE
    with pytest.raises(DecompressionFailed, match="no codec is named 'brotli'"):
        Compression.named("brotli")


@pytest.mark.parametrize("codec", CODECS)
def test_arrow_reads_what_we_write_and_we_read_what_it_writes(codec: Compression) -> None:
    """Another implementation of the same formats; it knows snappy without Java's framing only."""
    data = b"the same bytes " * 3000
    other = pyarrow.Codec(codec.name.lower())
    assert bytes(decompress(codec, other.compress(data, asbytes=True))) == data
    if codec is not Compression.SNAPPY:
        assert other.decompress(compress(codec, data), len(data), asbytes=True) == data
