"""Which partition a key belongs to, as Java producers (murmur2) and librdkafka (crc32) choose it."""

from __future__ import annotations

from zlib import crc32

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def partition_of(key: bytes, count: int, partitioner: str) -> int:
    return (crc32(key) if partitioner == "crc32" else _murmur2(key) & 0x7FFFFFFF) % count


def _murmur2(data: bytes) -> int:
    h = (_SEED ^ len(data)) & _MASK
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)
