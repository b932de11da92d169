"""Record batches (format 2) for the auditor: its own small codec, so that a fault in ours cannot hide itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cramjam
import crc32c

from atonce.errors import CorruptLogError
from atonce.verify.wire.decode import BATCH_HEAD_BYTES, BatchHead, batch_heads

_CRC_AT = 17
_BODY_AT = 21
_TIME_AT = 27
COMMIT_MARKER, ABORT_MARKER = 1, 0


@dataclass(frozen=True, slots=True)
class Record:
    """One record (or marker) as it stands in a partition."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    epoch: int
    transactional: bool
    control: bool
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int = -1

    @property
    def marker(self) -> int | None:
        """COMMIT_MARKER or ABORT_MARKER for a control record."""
        if not self.control or self.key is None or len(self.key) < 4:
            return None
        return int(struct.unpack_from(">hh", self.key)[1])


def decode(partition: int, records: bytes | None) -> Iterator[Record]:
    """Every record of every whole batch; raises `CorruptLogError` when a checksum does not hold."""
    view, at = memoryview(records or b""), 0
    for head in batch_heads(view):
        batch = view[at : at + head.size]
        at += head.size
        (stored,) = struct.unpack_from(">I", batch, _CRC_AT)
        if crc32c.crc32c(batch[_BODY_AT:]) != stored:
            raise CorruptLogError(
                f"the broker served a batch at offset {head.base_offset} of partition {partition} with a wrong checksum"
            )
        (attributes,) = struct.unpack_from(">h", batch, _BODY_AT)
        (first_ms,) = struct.unpack_from(">q", batch, _TIME_AT)
        yield from _records(partition, head, _unpacked(attributes & 7, batch[BATCH_HEAD_BYTES:]), first_ms)


def _unpacked(codec: int, payload: memoryview) -> bytes:
    data = bytes(payload)
    if codec == 0:
        return data
    if codec == 1:
        return bytes(cramjam.gzip.decompress(data))
    if codec == 2:
        return _unsnappy(data)
    if codec == 3:
        return bytes(cramjam.lz4.decompress(data))
    return bytes(cramjam.zstd.decompress(data))


def _unsnappy(data: bytes) -> bytes:
    """Java clients frame snappy in their own way (xerial), librdkafka sends one raw block."""
    if not data.startswith(b"\x82SNAPPY\x00"):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, at = bytearray(), 16
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return bytes(out)


def _records(partition: int, head: BatchHead, data: bytes, first_ms: int) -> Iterator[Record]:
    at = 0
    for _ in range(head.count):
        _, at = _varint(data, at)  # length
        at += 1  # attributes
        later_ms, at = _varint(data, at)
        delta, at = _varint(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        count, at = _varint(data, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(data, at)
            content, at = _bytes(data, at)
            headers.append((name or b"", content))
        yield Record(
            partition,
            head.base_offset + delta,
            key,
            value,
            head.producer_id,
            head.epoch,
            head.transactional,
            head.control,
            tuple(headers),
            first_ms + later_ms,
        )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _put_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def encode(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One uncompressed batch of (key, value)."""
    body = bytearray()
    for delta, (key, value) in enumerate(records):
        one = bytearray(b"\0")
        _put_varint(one, 0)
        _put_varint(one, delta)
        for part in (key, value):
            _put_varint(one, -1 if part is None else len(part))
            one += part or b""
        _put_varint(one, 0)
        _put_varint(body, len(one))
        body += one
    tail = struct.pack(
        ">hiqqqhii",
        0x10 if transactional else 0,
        len(records) - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        epoch,
        sequence,
        len(records),
    ) + bytes(body)
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c.crc32c(tail)) + tail
