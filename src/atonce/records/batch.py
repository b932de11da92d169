"""Record batch, magic 2: its 61-byte header, without touching the records.

    0 base offset  8 length  12 leader epoch  16 magic  17 crc32c | 21 attributes  23 last offset delta
    27 base timestamp  35 max timestamp  43 producer id  51 producer epoch  53 base sequence  57 record count
    61 records

The checksum covers everything after it. Base offset and leader epoch stand before it, so a broker can give a batch its
place in the log without computing it again. Nothing here allocates by a length that a batch declares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import crc32c

from atonce.errors import AtOnceError
from atonce.records.compression import Buffer, Compression

HEADER_SIZE = 61
LOG_OVERHEAD = 12
MAGIC = 2
MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
CRC_START = 21

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
MAX_SEQUENCE = 2**31 - 1

COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">qii")
_CHECKED = struct.Struct(">hiqqqhii")
_CRC = struct.Struct(">bI")


class InvalidBatch(AtOnceError):
    """The bytes are not a whole record batch of magic 2."""


class ChecksumMismatch(InvalidBatch):
    """A whole batch whose bytes changed on the way."""


class BatchHeader(NamedTuple):
    """One batch's header. A tuple because millions of them are read when a log is scanned."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """In the log: the declared length and the two fields before it."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        code = self.attributes & COMPRESSION_MASK
        if code > Compression.ZSTD:
            raise InvalidBatch(f"batch at offset {self.base_offset}: {code} is no compression codec (0 to 4)")
        return Compression(code)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop this batch's tombstones and markers; it stands in place of the base timestamp."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None


def increment_sequence(sequence: int, by: int) -> int:
    """Sequence numbers go from 2^31 - 1 back to 0."""
    return (sequence + by) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. It must be there whole, of magic 2, with a length that can hold a header."""
    if position + HEADER_SIZE > len(buffer):
        raise InvalidBatch(f"{len(buffer) - position} bytes are left at {position}; a batch header takes {HEADER_SIZE}")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise InvalidBatch(f"magic {header.magic} at byte {position}; only record batches of magic {MAGIC} are stored")
    if header.length < MIN_LENGTH:
        raise InvalidBatch(f"a batch at byte {position} says {header.length} bytes; the least is {MIN_LENGTH}")
    return header


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; an incomplete last one, as Fetch may cut it, ends the iteration."""
    position = 0
    end = len(buffer)
    while position + HEADER_SIZE <= end:
        header = read_header(buffer, position)
        if header.size > end - position:
            return
        yield position, header
        position += header.size


def split(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every batch; the batches must fill the buffer exactly."""
    found = list(iter_batches(buffer))
    end = found[-1][0] + found[-1][1].size if found else 0
    if end != len(buffer):
        raise InvalidBatch(f"{len(buffer) - end} bytes after byte {end} of {len(buffer)} are not a whole batch")
    return found


def checksum(buffer: Buffer, position: int, size: int) -> int:
    """crc32c of a batch that starts at `position` and takes `size` bytes in all."""
    return int(crc32c.crc32c(memoryview(buffer)[position + CRC_START : position + size]))


def verify(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise ChecksumMismatch unless the batch is as it was sent."""
    found = checksum(buffer, position, header.size)
    if found != header.crc:
        raise ChecksumMismatch(
            f"batch of {header.size} bytes at byte {position} (offset {header.base_offset}): "
            f"crc32c is {found:#010x}, its header says {header.crc:#010x}"
        )


def placed(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the batch at its place in the log. The checksum does not cover them."""
    return _PLACE.pack(base_offset, header.length, leader_epoch)


def log_append_timed(buffer: Buffer, position: int, header: BatchHeader, now_ms: int) -> tuple[BatchHeader, bytes]:
    """The batch stamped by the broker: (new header, its bytes 16 to 61). Records stay, the checksum changes."""
    stamped = header._replace(attributes=header.attributes | _LOG_APPEND_TIME, max_timestamp=now_ms)
    checked = _CHECKED.pack(*stamped[5:])
    records = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    crc = int(crc32c.crc32c(records, crc32c.crc32c(checked)))
    return stamped._replace(crc=crc), _CRC.pack(MAGIC, crc) + checked


def assemble(header: BatchHeader, records: Buffer) -> bytes:
    """A batch from a header and its (compressed) records; length and checksum are computed here."""
    checked = _CHECKED.pack(*header[5:])
    crc = int(crc32c.crc32c(records, crc32c.crc32c(checked)))
    place = _PLACE.pack(header.base_offset, MIN_LENGTH + len(records), header.leader_epoch)
    return b"".join((place, _CRC.pack(MAGIC, crc), checked, records))


def attributes(
    *,
    compression: Compression = Compression.NONE,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    """The attributes field."""
    flags = int(compression)
    for wanted, bit in (
        (transactional, _TRANSACTIONAL),
        (control, _CONTROL),
        (delete_horizon, _DELETE_HORIZON),
    ):
        flags |= bit if wanted else 0
    return flags
