"""Single records inside a batch, in plain Python: internal topics, control markers, compaction, timestamp look-ups.

The data path of pipelines never comes here; it moves whole columns (`records/columns.py`).

    record: varint length | attributes int8 | varint timestamp delta | varint offset delta
            | varint key length, key | varint value length, value | varint header count, headers
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from atonce.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    InvalidBatch,
    assemble,
    attributes,
    read_header,
)
from atonce.records.compression import DEFAULT_LIMIT, Buffer, Compression, compress, decompress

_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1


class Record(NamedTuple):
    """One record with its absolute offset and timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Marker(NamedTuple):
    """The end of a transaction as it stands in a partition."""

    commit: bool
    coordinator_epoch: int


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None] | Record],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytes:
    """A batch from (key, value) pairs, all at `timestamp_ms`, or from Records with their own timestamps."""
    if not records:
        raise InvalidBatch("a batch needs at least one record")
    body = bytearray()
    latest = NO_TIMESTAMP
    for delta, item in enumerate(records):
        if isinstance(item, Record):
            when, key, value, headers = item.timestamp_ms, item.key, item.value, item.headers
        else:
            when, headers = timestamp_ms, ()
            key, value = item[0], item[1]
        latest = max(latest, when)
        encode_record(body, delta, when - timestamp_ms, key, value, headers)
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=attributes(compression=compression, transactional=transactional),
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=latest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(compression, body))


def build_marker(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, *, timestamp_ms: int
) -> bytes:
    """The control batch that ends a transaction."""
    body = bytearray()
    key = _CONTROL_KEY.pack(0, _COMMIT if commit else _ABORT)
    encode_record(body, 0, 0, key, _CONTROL_VALUE.pack(0, coordinator_epoch), ())
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=attributes(transactional=True, control=True),
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return assemble(header, body)


def read_marker(batch: Buffer) -> Marker | None:
    """What a control batch says about its transaction; None for other control batches and for emptied ones."""
    if read_header(batch).record_count == 0:
        return None
    for record in iter_records(batch):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            break
        _version, kind = _CONTROL_KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        if record.value is None or len(record.value) < _CONTROL_VALUE.size:
            break
        return Marker(kind == _COMMIT, _CONTROL_VALUE.unpack_from(record.value)[1])
    raise InvalidBatch("a control batch without a readable control record")


def iter_records(batch: Buffer, *, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """Every record of one whole batch. InvalidBatch or DecompressionFailed if it is not well-formed."""
    header = read_header(batch)
    if header.record_count == 0:
        return  # all that compaction left is the header
    body = decompressed(batch, header, limit=limit)
    for start, end in record_bounds(body, header.record_count):
        record = decode_record(body, start, end, header.base_offset, header.base_timestamp)
        if header.is_log_append_time:
            record = record._replace(timestamp_ms=header.max_timestamp)
        yield record


def decompressed(batch: Buffer, header: BatchHeader, *, limit: int = DEFAULT_LIMIT) -> memoryview:
    """The records part of a batch, plain."""
    return memoryview(decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit=limit))


def record_bounds(body: memoryview, count: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each record after its length; together they must fill the body exactly."""
    position = 0
    for index in range(count):
        length, start = read_varint(body, position)
        position = start + length
        if length < 0 or position > len(body):
            raise InvalidBatch(f"record {index} of {count} says {length} bytes, {len(body) - start} are left")
        yield start, position
    if position != len(body):
        raise InvalidBatch(f"{len(body) - position} bytes are left after the {count} records of a batch")


def decode_record(body: memoryview, start: int, end: int, base_offset: int, base_timestamp: int) -> Record:
    """The record between two bounds."""
    timestamp_delta, position = read_varint(body, start + 1)
    offset_delta, position = read_varint(body, position)
    key, position = _read_bytes(body, position, end)
    value, position = _read_bytes(body, position, end)
    count, position = read_varint(body, position)
    if count < 0 or count > end - position:
        raise InvalidBatch(f"a record says {count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(body, position, end)
        data, position = _read_bytes(body, position, end)
        if name is None:
            raise InvalidBatch("a record header without a name")
        headers.append((name.decode("utf-8", "replace"), data))
    if position != end:
        raise InvalidBatch(f"{end - position} bytes are left in a record after its headers")
    return Record(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, tuple(headers))


def encode_record(
    body: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> None:
    """Append one record to the body of a batch."""
    record = bytearray(b"\x00")
    write_varint(record, timestamp_delta)
    write_varint(record, offset_delta)
    _write_bytes(record, key)
    _write_bytes(record, value)
    write_varint(record, len(headers))
    for name, data in headers:
        _write_bytes(record, name.encode())
        _write_bytes(record, data)
    write_varint(body, len(record))
    body += record


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """(value, next position) of a zigzag varint of at most ten bytes."""
    result = 0
    shift = 0
    end = len(buffer)
    while True:
        if position >= end or shift > 63:
            raise InvalidBatch(f"a varint at byte {position} of {end} does not end")
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def write_varint(output: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        output.append((value & 0x7F) | 0x80)
        value >>= 7
    output.append(value)


def _read_bytes(buffer: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(buffer, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise InvalidBatch(f"a field says {length} bytes, {end - position} are left in its record")
    return bytes(buffer[position : position + length]), position + length


def _write_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(output, -1)
    else:
        write_varint(output, len(data))
        output += data
