"""Compression of the records inside a batch."""

from __future__ import annotations

from typing import Any

import cramjam

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
XERIAL = b"\x82SNAPPY\x00"


def compress(codec: int, data: Any) -> Any:
    if codec == 1:
        return cramjam.gzip.compress(data, level=6)
    if codec == 2:
        return cramjam.snappy.compress_raw(data)
    if codec == 3:
        return cramjam.lz4.compress(data)
    return cramjam.zstd.compress(data, level=3)


def decompress(codec: int, data: Any) -> Any:
    if codec == 1:
        return cramjam.gzip.decompress(data)
    if codec == 2:
        if bytes(data[:8]) != XERIAL:
            return cramjam.snappy.decompress_raw(data)
        parts, at = [], 16
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            parts.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
            at += 4 + size
        return b"".join(parts)
    if codec == 3:
        return cramjam.lz4.decompress(data)
    return cramjam.zstd.decompress(data)
