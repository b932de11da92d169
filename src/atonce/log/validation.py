"""What an append must satisfy before a byte is written: headers, checksums, and for clients every record.

A batch with the right checksum may still lie about what is in it; `records/walk.py` looks, compiled. What a compressed
batch may become is limited, or a few kilobytes would take the memory of the broker.
"""

from __future__ import annotations

from typing import NamedTuple

from atonce.log.config import LogConfig
from atonce.log.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
)
from atonce.log.results import AppendOrigin
from atonce.log.storage import Buffer
from atonce.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    ChecksumMismatch,
    InvalidBatch,
    assemble,
    log_append_timed,
    placed,
    read_header,
    split,
    verify,
)
from atonce.records.compression import Compression, DecompressionFailed, TooMuchComesOut, compress
from atonce.records.record import decompressed
from atonce.records.walk import PROBLEMS, Walked, walk

PLACE_SIZE = 16
_LEAST_LIMIT_BYTES = 32 * 1024 * 1024
# So much may come out of a compressed batch where it arrives: a third of a millisecond.
_PATIENCE_BYTES = 1024 * 1024
_FLAGS_AT = 22


class Incoming(NamedTuple):
    """A batch that may be appended: its header and its bytes after the first 16, which depend on its place."""

    header: BatchHeader
    rest: tuple[Buffer, ...]

    def placed(self, base_offset: int, leader_epoch: int) -> tuple[Buffer, ...]:
        return (placed(self.header, base_offset, leader_epoch), *self.rest)


class TakesLonger(Exception):
    """More comes out of a batch than is looked at while others wait."""


def accept_quickly(buffer: Buffer, config: LogConfig, now_ms: int) -> list[Incoming] | None:
    """As `accept`, for a client's small compressed batch; None if so much comes out of it that it takes longer."""
    try:
        return accept(buffer, config, AppendOrigin.CLIENT, now_ms, patience_bytes=_PATIENCE_BYTES)
    except TakesLonger:
        return None


def is_compressed(buffer: Buffer) -> bool:
    """By the flags of the first batch; what is too short for a batch is not."""
    return len(buffer) > _FLAGS_AT and bool(buffer[_FLAGS_AT] & COMPRESSION_MASK)


def accept(
    buffer: Buffer, config: LogConfig, origin: AppendOrigin, now_ms: int, *, patience_bytes: int | None = None
) -> list[Incoming]:
    """The batches in the buffer, checked and ready to be placed; a LogError says what is wrong with them.

    Raises TakesLonger when more than `patience_bytes` come out of a compressed batch.
    """
    try:
        first = read_header(buffer)
        found = [(0, first)] if first.size == len(buffer) else split(buffer)
        for position, header in found:
            verify(buffer, position, header)
    except ChecksumMismatch as error:
        raise CorruptMessage(f"append refused: {error}") from error
    except InvalidBatch as error:
        raise InvalidRecord(f"append refused: {error}") from error
    if len(buffer) > config.segment_bytes:
        raise RecordListTooLarge(f"{len(buffer)} bytes in one append; segment.bytes is {config.segment_bytes}")
    if origin is AppendOrigin.CLIENT and len(found) != 1:
        raise InvalidRecord(f"{len(found)} batches for one partition in a Produce request; exactly one is allowed")
    return [
        _accept_batch(buffer, position, header, config, origin, now_ms, patience_bytes) for position, header in found
    ]


def _accept_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    config: LogConfig,
    origin: AppendOrigin,
    now_ms: int,
    patience_bytes: int | None,
) -> Incoming:
    _check_size(header, config)
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"a batch with {header.record_count} records and last offset delta {header.last_offset_delta}; "
            f"the delta must be one less than a positive count"
        )
    view = memoryview(buffer)[position : position + header.size]
    if origin is AppendOrigin.CLIENT:
        _check_client(header)
        walked = _walk_records(header, view, config, patience_bytes)
        if not config.log_append_time:
            _check_timestamps(walked, config, now_ms)
            if walked.most_timestamp != header.max_timestamp:
                # Kafka puts it right, too: time indexes rely on it.
                right = header._replace(max_timestamp=walked.most_timestamp)
                view = memoryview(assemble(right, view[HEADER_SIZE:]))
                header = read_header(view)
    if config.compression_type != "producer":
        wanted = Compression.named(config.compression_type)
        if wanted != header.compression:
            header, view = _recompressed(header, view, wanted, config)
            _check_size(header, config)
    if config.log_append_time:
        header, stamped = log_append_timed(view, 0, header, now_ms)
        return Incoming(header, (stamped, view[HEADER_SIZE:]))
    return Incoming(header, (view[PLACE_SIZE:],))


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.size > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {header.size} bytes; max.message.bytes is {config.max_message_bytes}")


def _check_client(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"a batch with base offset {header.base_offset} in a Produce request; a producer says 0")
    if header.is_control:
        raise InvalidRecord("a control batch in a Produce request; only the transaction coordinator writes them")
    if header.is_log_append_time:
        raise InvalidTimestamp(
            "a batch with timestamp type LogAppendTime in a Produce request; only the broker sets it"
        )
    if header.delete_horizon_ms is not None:
        raise InvalidRecord("a batch with a delete horizon in a Produce request; only the cleaner sets it")
    if header.has_producer and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(
            f"producer id {header.producer_id} with epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}; both must be 0 or more"
        )
    if not header.has_producer and (header.is_transactional or header.base_sequence != NO_SEQUENCE):
        raise InvalidRecord("a transactional or numbered batch without a producer id")


def _walk_records(header: BatchHeader, batch: memoryview, config: LogConfig, patience_bytes: int | None) -> Walked:
    most = most_unpacked(config)
    try:
        records = decompressed(batch, header, limit=most if patience_bytes is None else min(most, patience_bytes))
    except TooMuchComesOut as error:
        if patience_bytes is not None and patience_bytes < most:
            raise TakesLonger from None
        raise InvalidRecord(f"append refused: {error}") from error
    except (InvalidBatch, DecompressionFailed) as error:
        raise InvalidRecord(f"append refused: {error}") from error
    walked = walk(records, header.record_count, header.base_timestamp)
    if walked.problem:
        raise InvalidRecord(
            f"append refused: record {walked.record} of a batch that says it has {header.record_count}: "
            f"{PROBLEMS[walked.problem]}"
        )
    if config.compacts and walked.null_keys:
        raise InvalidRecord(f"{walked.null_keys} records of the batch have no key, and the topic is compacted")
    return walked


def most_unpacked(config: LogConfig) -> int:
    """What may come out of a compressed batch: thirty-two times the largest one, which no real data reaches."""
    return max(_LEAST_LIMIT_BYTES, 32 * config.max_message_bytes)


def _check_timestamps(walked: Walked, config: LogConfig, now_ms: int) -> None:
    if walked.most_timestamp == NO_TIMESTAMP:
        return
    if walked.most_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {walked.most_timestamp} is more than message.timestamp.after.max.ms "
            f"({config.message_timestamp_after_max_ms}) after now ({now_ms})"
        )
    if walked.least_timestamp != NO_TIMESTAMP and (
        now_ms - walked.least_timestamp > config.message_timestamp_before_max_ms
    ):
        raise InvalidTimestamp(
            f"timestamp {walked.least_timestamp} is more than message.timestamp.before.max.ms "
            f"({config.message_timestamp_before_max_ms}) before now ({now_ms})"
        )


def _recompressed(
    header: BatchHeader, batch: memoryview, wanted: Compression, config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """The topic's `compression.type` is not the producer's: the same records, packed otherwise."""
    try:
        records = decompressed(batch, header, limit=most_unpacked(config))
    except DecompressionFailed as error:
        raise InvalidRecord(f"append refused: {error}") from error
    changed = header._replace(attributes=(header.attributes & ~COMPRESSION_MASK) | int(wanted))
    packed = assemble(changed, compress(wanted, records))
    return read_header(packed), memoryview(packed)
