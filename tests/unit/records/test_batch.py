"""Record batch headers, checksums, records and markers; checked against kafka-python's own implementation."""

from __future__ import annotations

import random
import struct

import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from atonce.records.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    ChecksumMismatch,
    InvalidBatch,
    assemble,
    increment_sequence,
    iter_batches,
    log_append_timed,
    placed,
    read_header,
    split,
    verify,
)
from atonce.records.compression import Compression
from atonce.records.record import (
    Marker,
    Record,
    build_batch,
    build_marker,
    iter_records,
    read_marker,
    read_varint,
    write_varint,
)

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", ()),
    Record(1, NOW + 7, None, b"", (("h", b"1"), ("h", None), ("ü", b""))),
    Record(2, NOW - 9, b"", None, ()),
]


def sample(**changes: object) -> bytes:
    return build_batch(RECORDS, timestamp_ms=NOW, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", list(Compression))
def test_records_come_back_as_they_went_in(compression: Compression) -> None:
    batch = sample(compression=compression, base_offset=0)
    assert list(iter_records(batch)) == RECORDS
    header = read_header(batch)
    assert header.compression is compression
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (3, 2, NOW + 7)
    verify(batch, 0, header)


def test_another_implementation_reads_our_batches() -> None:
    theirs = DefaultRecordBatch(bytearray(sample(producer_id=5, producer_epoch=3, base_sequence=9, transactional=True)))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 3, 9)
    assert theirs.is_transactional and not theirs.is_control_batch
    assert [(r.key, r.value, r.timestamp) for r in theirs] == [(r.key, r.value, r.timestamp_ms) for r in RECORDS]


def test_we_read_another_implementations_batches() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=1,
        is_transactional=False,
        producer_id=4,
        producer_epoch=1,
        base_sequence=6,
        batch_size=10_000,
    )
    for index in range(5):
        builder.append(index, NOW + index, b"k%d" % index, b"v%d" % index, [("h", b"x")])
    batch = bytes(builder.build())
    header = read_header(batch)
    verify(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (4, 1, 6, 10)
    assert [(r.offset, r.key) for r in iter_records(batch)] == [(index, b"k%d" % index) for index in range(5)]


def test_placing_a_batch_leaves_its_checksum_true() -> None:
    batch = sample()
    moved = placed(read_header(batch), 12_345, 6) + batch[16:]
    header = read_header(moved)
    verify(moved, 0, header)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (12_345, 6, 12_347)
    assert [record.offset for record in iter_records(moved)] == [12_345, 12_346, 12_347]


def test_log_append_time_changes_timestamps_and_checksum_only() -> None:
    batch = sample()
    header, stamped = log_append_timed(batch, 0, read_header(batch), 99)
    changed = batch[:16] + stamped + batch[HEADER_SIZE:]
    assert read_header(changed) == header
    verify(changed, 0, header)
    assert header.is_log_append_time
    assert [record.timestamp_ms for record in iter_records(changed)] == [99, 99, 99]


def test_every_flipped_bit_after_the_checksum_is_found() -> None:
    batch = sample()
    for position in range(21, len(batch)):
        bad = bytearray(batch)
        bad[position] ^= 1 << (position % 8)
        with pytest.raises(ChecksumMismatch):
            verify(bad, 0, read_header(bad))


def test_batches_are_walked_by_their_headers() -> None:
    parts = [sample(), sample(compression=Compression.ZSTD), build_marker(1, 0, True, 0, timestamp_ms=NOW)]
    buffer = b"".join(parts)
    found = split(buffer)
    assert [header.size for _, header in found] == [len(part) for part in parts]
    assert [position for position, _ in found] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]


def test_a_cut_last_batch_ends_the_walk_but_is_refused_by_split() -> None:
    buffer = sample() + sample()[:-1]
    assert len(list(iter_batches(buffer))) == 1
    with pytest.raises(InvalidBatch, match="not a whole batch"):
        split(buffer)


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_lengths_that_cannot_hold_a_header_are_refused(length: int) -> None:
    bad = bytearray(sample())
    struct.pack_into(">i", bad, 8, length)
    with pytest.raises(InvalidBatch):
        split(bad)


def test_random_bytes_never_do_worse_than_be_refused() -> None:
    """Issue 4, Limits: declared lengths allocate nothing."""
    rng = random.Random(4)
    good = sample()
    for _ in range(3_000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            for position, header in split(bad):
                list(iter_records(bytes(bad[position : position + header.size])))
        except InvalidBatch:
            continue
        except Exception as error:
            assert type(error).__name__ == "DecompressionFailed", repr(error)


def test_declared_counts_are_checked_against_the_bytes() -> None:
    batch = sample()
    for count in (2, 4, 2**31 - 1):
        header = read_header(batch)._replace(record_count=count)
        with pytest.raises(InvalidBatch):
            list(iter_records(assemble(header, batch[HEADER_SIZE:])))


@pytest.mark.parametrize("commit", [True, False])
def test_markers_come_back_as_they_went_in(commit: bool) -> None:
    batch = build_marker(7, 3, commit, 11, timestamp_ms=NOW)
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert read_marker(batch) == Marker(commit, 11)
    theirs = DefaultRecordBatch(bytearray(batch))
    assert theirs.is_control_batch
    (control,) = list(theirs)
    assert control.commit is commit


def test_sequences_wrap() -> None:
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 1, 3) == 1
    header = read_header(sample(producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE))
    assert header.last_sequence == 1


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**63 - 1])
def test_varints(value: int) -> None:
    output = bytearray()
    write_varint(output, value)
    assert read_varint(memoryview(output), 0) == (value, len(output))


def test_a_varint_that_does_not_end_is_refused() -> None:
    for data in (b"", b"\x80", b"\xff" * 11):
        with pytest.raises(InvalidBatch, match="does not end"):
            read_varint(memoryview(data), 0)


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(InvalidBatch, match="at least one record"):
        build_batch([], timestamp_ms=NOW)


def test_the_header_has_sixty_one_bytes_in_kafkas_order() -> None:
    header = BatchHeader(1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    data = assemble(header, b"")
    assert len(data) == HEADER_SIZE
    assert struct.unpack_from(">q", data, 0) == (1,)
    assert struct.unpack_from(">i", data, 12) == (3,)
    assert data[16] == 2
    assert struct.unpack_from(">hiqqqhii", data, 21) == (6, 7, 8, 9, 10, 11, 12, 13)
