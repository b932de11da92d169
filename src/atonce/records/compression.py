"""The four codecs of Kafka's record batches, with a limit on what may come out.

A compressed batch of a few kilobytes can claim gigabytes. Output grows in steps from the size of the input and stops
at `limit`; no length that a peer declares is ever allocated.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable

import cramjam

from atonce.errors import AtOnceError

Buffer = bytes | bytearray | memoryview

DEFAULT_LIMIT = 512 * 1024 * 1024
XERIAL_HEADER = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
XERIAL_BLOCK = 32 * 1024
ZSTD_LEVEL = 3
GZIP_LEVEL = 6


class Compression(enum.IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Compression:
        """By Kafka's configuration value: none (or uncompressed), gzip, snappy, lz4, zstd."""
        found = {"uncompressed": cls.NONE}.get(name.lower())
        if found is not None:
            return found
        try:
            return cls[name.upper()]
        except KeyError:
            raise DecompressionFailed(
                f"no codec is named {name!r}; there are none, gzip, snappy, lz4 and zstd"
            ) from None


class DecompressionFailed(AtOnceError):
    """The bytes are not what their codec says, or more comes out of them than is allowed."""


class TooMuchComesOut(DecompressionFailed):
    """More comes out than is allowed."""


def compress(codec: Compression, data: Buffer) -> bytes:
    """As Kafka's own producer frames it."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Compression.SNAPPY:
            return _snappy_xerial(memoryview(data))
        case Compression.LZ4:
            # Java refuses linked blocks, which are this library's default.
            stream = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
            stream.compress(data if isinstance(data, bytes) else bytes(data))
            return bytes(stream.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Compression, data: Buffer, *, limit: int = DEFAULT_LIMIT) -> bytes | bytearray | memoryview:
    """The records of a batch; raises DecompressionFailed when more than `limit` bytes would come out."""
    match codec:
        case Compression.NONE:
            if len(data) > limit:
                raise _too_large(codec, limit)
            return data
        case Compression.GZIP:
            return _grow(codec, cramjam.gzip.decompress_into, data, limit)
        case Compression.SNAPPY:
            return _snappy(memoryview(data), limit)
        case Compression.LZ4:
            return _grow(codec, cramjam.lz4.decompress_into, data, limit)
        case Compression.ZSTD:
            return _grow(codec, cramjam.zstd.decompress_into, data, limit)


def _grow(codec: Compression, into: Callable[..., int], data: Buffer, limit: int) -> memoryview:
    """Decompress into a buffer that doubles until the data fits. The first guess nearly always does."""
    room = min(limit, max(64 * 1024, 6 * len(data)))
    while True:
        output = bytearray(room)
        try:
            size = into(data, output)
            return memoryview(output)[:size]
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise DecompressionFailed(f"{len(data)} bytes are not {codec.name.lower()}: {error}") from error
        if room >= limit:
            raise _too_large(codec, limit)
        room = min(limit, room * 4)


def _snappy_xerial(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _snappy(data: memoryview, limit: int) -> bytes | bytearray:
    """Java frames snappy in blocks (xerial); librdkafka sends one raw block. Both are in every Kafka."""
    if bytes(data[: len(XERIAL_HEADER)])[:8] != XERIAL_HEADER[:8]:
        return _snappy_block(data, limit, limit)
    output = bytearray()
    position = len(XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise DecompressionFailed(f"snappy: a block length is cut at byte {position} of {len(data)}")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or length > len(data) - position:
            raise DecompressionFailed(f"snappy: a block says {length} bytes, {len(data) - position} are left")
        output += _snappy_block(data[position : position + length], limit - len(output), limit)
        position += length
    return output


def _snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large(Compression.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(f"{len(block)} bytes are not snappy: {error}") from error


def _too_large(codec: Compression, limit: int) -> TooMuchComesOut:
    return TooMuchComesOut(f"more than the {limit} allowed bytes come out of a {codec.name.lower()} batch")
