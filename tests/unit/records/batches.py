"""Random rows, and sealing of encoded batches, for the codec's tests."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa

from atonce.records.columns import decode, locate
from atonce.records.headers import HEADERS

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])
EVERYTHING = {"start": 0, "end": 1 << 60}


def random_rows(count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)

    def maybe(chance: float, size: int) -> bytes | None:
        return None if rng.random() < chance else rng.bytes(int(rng.integers(0, size)))

    def headers() -> list[dict[str, Any]] | None:
        if rng.random() < 0.2:
            return None
        return [{"key": f"h{i}", "value": maybe(0.3, 9)} for i in range(int(rng.integers(0, 4)))]

    rows = [{"key": maybe(0.2, 20), "value": maybe(0.1, 300), "headers": headers()} for _ in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def sealed(blob: Any, *, base_offset: int = 0, attributes: int = 0, producer_id: int = -1, epoch: int = -1) -> bytes:
    """The blob as a broker would store it: offset, producer, attributes and checksum filled in."""
    data = bytearray(bytes(blob))
    struct.pack_into(">q", data, 0, base_offset)
    (codec,) = struct.unpack_from(">h", data, 21)
    struct.pack_into(">h", data, 21, codec | attributes)
    struct.pack_into(">qh", data, 43, producer_id, epoch)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def marker(base_offset: int, *, producer_id: int, commit: bool) -> bytes:
    """A transaction's end, as the broker writes it."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    body = bytes([0, 0, 0, len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    record = bytes([len(body) * 2]) + body
    head = struct.pack(">qiibIhiqqqhii", base_offset, 49 + len(record), 0, 2, 0, 0x30, 0, 0, 0, producer_id, 0, -1, 1)
    return sealed(head + record, base_offset=base_offset, producer_id=producer_id, epoch=0)


def rows_of(data: bytes, **options: Any) -> list[dict[str, Any]]:
    found = decode(locate(data), **{**EVERYTHING, **options})
    for column in found.columns.values():
        column.validate(full=True)
    rows: list[dict[str, Any]] = pa.table(found.columns).to_pylist()
    return rows
