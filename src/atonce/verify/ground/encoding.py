"""Record batches (format 2) as the auditor's input needs them: headers, times, every codec. None of it is ours."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

import cramjam
import crc32c

from atonce.connectors.contract import InputRecord

TRANSACTIONAL = 0x10


def batch_of(
    records: Sequence[InputRecord],
    *,
    producer: tuple[int, int],
    sequence: int,
    codec: int = 0,
    transactional: bool = False,
    now_ms: int,
) -> bytes:
    times = [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
    body = bytearray()
    for delta, (record, at_ms) in enumerate(zip(records, times, strict=True)):
        one = bytearray(b"\0")
        _varint(one, at_ms - times[0])
        _varint(one, delta)
        _bytes(one, record.key)
        _bytes(one, record.value)
        _varint(one, len(record.headers))
        for name, value in record.headers:
            _bytes(one, name.encode())
            _bytes(one, value)
        _varint(body, len(one))
        body += one
    tail = struct.pack(
        ">hiqqqhii",
        codec | (TRANSACTIONAL if transactional else 0),
        len(records) - 1,
        times[0],
        max(times),
        *producer,
        sequence,
        len(records),
    ) + _packed(codec, bytes(body))
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c.crc32c(tail)) + tail


def _packed(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return gzip.compress(data, 1)
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == 3:
        # Java reads no blocks that depend on the one before.
        stream = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
        stream.compress(data)
        return bytes(stream.finish())
    return bytes(cramjam.zstd.compress(data)) if codec == 4 else data


def _varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # length -1
        return
    _varint(out, len(data))
    out += data
