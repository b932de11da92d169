"""Append: what is taken, what is refused, and where it goes. SPEC S2, S8."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from atonce.log.config import LogConfig
from atonce.log.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin
from atonce.records.batch import attributes, iter_batches, read_header
from atonce.records.compression import Compression
from atonce.records.record import Record, build_batch, build_marker, iter_records
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock

NOW = 1_700_000_000_000


def open_log(config: LogConfig | None = None, storage: ForgetfulStorage | None = None) -> PartitionLog:
    return PartitionLog.open(storage or ForgetfulStorage(), "t-0", config or LogConfig(retention_ms=-1), TestClock())


def batch_of(*values: bytes, **kwargs: object) -> bytes:
    return build_batch([(b"key", value) for value in values], timestamp_ms=NOW, **kwargs)  # type: ignore[arg-type]


def values_of(log: PartitionLog, offset: int = 0) -> list[bytes | None]:
    data = log.read(offset, 1 << 20).read()
    return [r.value for at, h in iter_batches(data) for r in iter_records(data[at : at + h.size])]


def test_offsets_are_consecutive_and_stored_in_the_batches() -> None:
    log = open_log()
    assert log.append(batch_of(b"a", b"b"), leader_epoch=4).base_offset == 0
    result = log.append(batch_of(b"c"), leader_epoch=5)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (2, 2, -1)
    log.flush()
    data = log.read(0, 1 << 20).read()
    headers = [header for _, header in iter_batches(data)]
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(0, 4), (2, 5)]
    assert values_of(log) == [b"a", b"b", b"c"]


def test_the_batch_is_stored_as_it_was_sent() -> None:
    log = open_log()
    sent = batch_of(b"a" * 500, compression=Compression.ZSTD)
    log.append(sent)
    log.flush()
    assert log.read(0, 1 << 20).read()[16:] == sent[16:]


def test_nothing_is_served_before_it_is_flushed() -> None:
    """S22: a consumer must not see a record that a crash could take back."""
    log = open_log()
    result = log.append(batch_of(b"a"))
    assert result.flush_required
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    assert log.read(0, 100).size == 0
    assert log.flush() == 1
    assert log.high_watermark == 1
    assert values_of(log) == [b"a"]


def test_lazy_flush_serves_at_once_and_says_when_it_is_due() -> None:
    log = open_log(LogConfig(flush_messages=3, retention_ms=-1))
    assert not log.append(batch_of(b"a")).flush_required
    assert log.high_watermark == 1
    assert not log.flush_due()
    assert log.append(batch_of(b"b", b"c")).flush_required
    assert log.flush_due()
    log.flush()
    assert not log.flush_due()


def test_flush_ms_makes_a_flush_due_by_time() -> None:
    clock = TestClock()
    log = PartitionLog.open(ForgetfulStorage(), "t-0", LogConfig(flush_messages=10**9, flush_ms=500), clock)
    log.append(batch_of(b"a"))
    log.flush()
    log.append(batch_of(b"b"))
    assert not log.flush_due()
    clock.now_ms += 500
    assert log.flush_due()


def test_however_lazy_a_flush_is_due_before_a_restart_would_scan_too_much() -> None:
    lazy = LogConfig(flush_messages=10**9, checkpoint_bytes=1_000, segment_bytes=3_000, retention_ms=-1)
    log = open_log(lazy)
    flushes = 0
    for _ in range(100):
        log.append(batch_of(b"x" * 80))
        if log.flush_due():
            log.flush()
            flushes += 1
    assert log.segment_count > 3
    assert 10 <= flushes <= 40


def test_high_watermark_callback_is_called_by_flush() -> None:
    log = open_log()
    seen: list[int] = []
    log.on_high_watermark = lambda: seen.append(log.high_watermark)
    log.append(batch_of(b"a"))
    assert seen == []
    log.flush()
    assert seen == [1]


def test_a_flipped_bit_is_refused_as_corrupt() -> None:
    """F13: the peer's bytes are checked before they are written."""
    bad = bytearray(batch_of(b"a"))
    bad[-3] ^= 1
    log = open_log()
    with pytest.raises(CorruptMessage, match="crc32c") as caught:
        log.append(bad)
    assert caught.value.code == 2
    assert log.log_end_offset == 0


@pytest.mark.parametrize("size", [0, 1, 16, 60, 61, 70])
def test_an_incomplete_batch_is_refused(size: int) -> None:
    with pytest.raises(InvalidRecord) as caught:
        open_log().append(batch_of(b"a" * 50)[:size])
    assert caught.value.code == 87


def test_a_length_beyond_the_bytes_is_refused_without_allocating() -> None:
    bad = bytearray(batch_of(b"a"))
    struct.pack_into(">i", bad, 8, 2**31 - 1)
    with pytest.raises(InvalidRecord):
        open_log().append(bad)


def test_old_magic_is_refused() -> None:
    bad = bytearray(batch_of(b"a"))
    bad[16] = 1
    with pytest.raises(InvalidRecord, match="magic 1"):
        open_log().append(bad)


def test_two_batches_in_one_produce_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="exactly one"):
        open_log().append(batch_of(b"a") + batch_of(b"b"))


def test_coordinators_may_append_several_batches_at_once() -> None:
    log = open_log()
    result = log.append(batch_of(b"a", b"b") + batch_of(b"c"), origin=AppendOrigin.COORDINATOR)
    assert (result.base_offset, result.last_offset) == (0, 2)
    log.flush()
    assert values_of(log) == [b"a", b"b", b"c"]


def test_control_batches_from_clients_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="control batch"):
        open_log().append(build_marker(1, 0, True, 0, timestamp_ms=NOW))


def test_a_count_that_does_not_fit_the_offsets_is_refused() -> None:
    from atonce.records.batch import HEADER_SIZE, assemble

    good = batch_of(b"a", b"b")
    header = read_header(good)
    for changed in (header._replace(record_count=0), header._replace(last_offset_delta=5)):
        with pytest.raises(InvalidRecord, match="last offset delta"):
            open_log().append(assemble(changed, good[HEADER_SIZE:]))


def test_transactional_flag_without_a_producer_id_is_refused() -> None:
    """DESIGN 5: the broker must not take it as plain data."""
    with pytest.raises(InvalidRecord, match="without a producer id"):
        open_log().append(batch_of(b"a", transactional=True))


def test_too_large_batches_are_refused_by_kafkas_codes() -> None:
    log = open_log(LogConfig(max_message_bytes=200, segment_bytes=300, retention_ms=-1))
    with pytest.raises(MessageTooLarge) as caught:
        log.append(batch_of(b"a" * 200))
    assert caught.value.code == 10
    with pytest.raises(RecordListTooLarge) as larger:
        log.append(batch_of(b"a" * 400))
    assert larger.value.code == 18


def test_timestamps_too_far_from_now_are_refused() -> None:
    config = LogConfig(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=1000, retention_ms=-1)
    log = open_log(config)
    for when in (NOW + 2000, NOW - 2000):
        with pytest.raises(InvalidTimestamp) as caught:
            log.append(build_batch([(None, b"a")], timestamp_ms=when))
        assert caught.value.code == 32
    log.append(build_batch([(None, b"a")], timestamp_ms=NOW + 1000))


def test_log_append_time_stamps_the_batch_and_its_checksum_holds() -> None:
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime", retention_ms=-1))
    result = log.append(build_batch([(b"k", b"a"), (b"k", b"b")], timestamp_ms=5))
    assert result.log_append_time_ms == NOW
    log.flush()
    data = log.read(0, 1 << 20).read()
    header = read_header(data)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW
    assert [record.timestamp_ms for record in iter_records(data)] == [NOW, NOW]
    from atonce.records.batch import verify

    verify(data, 0, header)


def test_compacted_topics_refuse_records_without_a_key() -> None:
    log = open_log(LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=-1))
    with pytest.raises(InvalidRecord, match="have no key"):
        log.append(build_batch([(b"k", b"a"), (None, b"b")], timestamp_ms=NOW, compression=Compression.LZ4))
    log.append(build_batch([(b"k", b"a")], timestamp_ms=NOW, compression=Compression.LZ4))


def test_topic_compression_type_repacks_the_same_records() -> None:
    log = open_log(LogConfig(compression_type="zstd", retention_ms=-1))
    records = [Record(0, NOW + i, b"k%d" % i, b"v" * 100, (("h", b"x"),)) for i in range(3)]
    log.append(build_batch(records, timestamp_ms=NOW, compression=Compression.GZIP))
    log.flush()
    data = log.read(0, 1 << 20).read()
    assert read_header(data).compression is Compression.ZSTD
    assert [(r.key, r.timestamp_ms, r.headers) for r in iter_records(data)] == [
        (r.key, r.timestamp_ms, r.headers) for r in records
    ]


def test_an_unknown_codec_is_refused() -> None:
    from atonce.records.batch import HEADER_SIZE, assemble

    good = batch_of(b"a")
    header = read_header(good)._replace(attributes=attributes() | 6)
    with pytest.raises(InvalidRecord, match="no compression codec"):
        open_log().append(assemble(header, good[HEADER_SIZE:]))


def test_segments_roll_by_size_and_reads_cross_them() -> None:
    log = open_log(LogConfig(segment_bytes=300, retention_ms=-1))
    for index in range(10):
        log.append(batch_of(b"value-%d" % index + b"x" * 60))
    log.flush()
    assert log.segment_count > 3
    got: list[bytes | None] = []
    offset = 0
    while offset < log.high_watermark:
        data = log.read(offset, 1 << 20).read()
        for at, header in iter_batches(data):
            got += [record.value for record in iter_records(data[at : at + header.size])]
            offset = header.next_offset
    assert [value[:7] for value in got if value] == [b"value-%d" % index for index in range(10)]


def test_segments_roll_by_time_of_their_records() -> None:
    log = open_log(LogConfig(segment_ms=1000, message_timestamp_after_max_ms=10**9, retention_ms=-1))
    log.append(build_batch([(None, b"a")], timestamp_ms=NOW))
    log.append(build_batch([(None, b"b")], timestamp_ms=NOW + 1000))
    assert log.segment_count == 1
    log.append(build_batch([(None, b"c")], timestamp_ms=NOW + 1001))
    assert log.segment_count == 2


def test_reads_outside_the_log_are_refused() -> None:
    log = open_log()
    log.append(batch_of(b"a"))
    log.flush()
    assert log.read(1, 100).size == 0
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 100)
        assert caught.value.code == 1


def test_a_batch_larger_than_max_bytes_is_served_whole_or_not_at_all() -> None:
    log = open_log()
    log.append(batch_of(b"a" * 500))
    log.append(batch_of(b"b" * 500))
    log.flush()
    first = read_header(log.read(0, 1 << 20).read()).size
    assert log.read(0, 10).size == first
    assert log.read(0, 10, min_one_batch=False).size == 0
    assert log.read(0, first + 5).size == first + 5  # the last batch may be cut, as in Kafka
    assert log.read(0, 1 << 20).size == 2 * first


def test_a_read_in_the_middle_of_a_batch_begins_with_that_batch() -> None:
    log = open_log()
    log.append(batch_of(b"a", b"b", b"c"))
    log.flush()
    assert read_header(log.read(2, 100).read()).base_offset == 0


def test_config_changes_apply_to_the_next_append() -> None:
    log = open_log(LogConfig(retention_ms=-1, flush_messages=100))
    log.append(batch_of(b"a" * 300))
    log.update_config(dataclasses.replace(log.config, max_message_bytes=100, flush_messages=1))
    assert log.flushed_offset == 1, "what was served lazily is synced before the stricter rule holds"
    with pytest.raises(MessageTooLarge):
        log.append(batch_of(b"a" * 300))


def test_epoch_end_offsets_are_kafkas() -> None:
    log = open_log()
    assert log.epoch_end_offset(0).end_offset == -1
    for epoch in (2, 2, 5):
        log.append(batch_of(b"a", b"b"), leader_epoch=epoch)
    ends = {
        epoch: (log.epoch_end_offset(epoch).leader_epoch, log.epoch_end_offset(epoch).end_offset) for epoch in range(7)
    }
    assert ends == {0: (0, 0), 1: (1, 0), 2: (2, 4), 3: (2, 4), 4: (2, 4), 5: (5, 6), 6: (-1, -1)}
    assert log.latest_epoch == 5
