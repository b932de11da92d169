"""What leaves the log at its front. FAULTS F30."""

from __future__ import annotations

import dataclasses

import pytest

from atonce.log.config import LogConfig
from atonce.log.errors import KafkaStorageError, OffsetOutOfRange
from atonce.log.partition_log import PartitionLog
from atonce.records.record import build_batch
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock, read_all

CONFIG = LogConfig(segment_bytes=400, retention_ms=-1)


def filled(storage: ForgetfulStorage, clock: TestClock, config: LogConfig = CONFIG) -> PartitionLog:
    log = PartitionLog.open(storage, "t-0", config, clock)
    for _ in range(20):
        log.append(build_batch([(b"k", b"x" * 80)], timestamp_ms=clock()))
        clock.now_ms += 1_000
    log.flush()
    return log


def test_delete_records_moves_the_start_and_frees_whole_segments() -> None:
    storage, clock = ForgetfulStorage(), TestClock()
    log = filled(storage, clock)
    before = log.segment_count
    assert log.delete_records(7) == 7
    assert log.log_start_offset == 7
    assert log.segment_count < before
    with pytest.raises(OffsetOutOfRange):
        log.read(6, 100)
    assert read_all(log)[0][0].last_offset >= 7
    again = PartitionLog.open(storage.power_cut(None), "t-0", CONFIG, clock)
    assert again.log_start_offset == 7


def test_delete_records_up_to_the_high_watermark() -> None:
    storage, clock = ForgetfulStorage(), TestClock()
    log = filled(storage, clock)
    assert log.delete_records(-1) == 20
    assert log.read(20, 100).size == 0
    again = PartitionLog.open(storage.power_cut(None), "t-0", CONFIG, clock)
    assert (again.log_start_offset, again.log_end_offset) == (20, 20)
    assert again.append(build_batch([(b"k", b"v")], timestamp_ms=clock())).base_offset == 20


def test_delete_records_never_moves_back_and_never_beyond() -> None:
    log = filled(ForgetfulStorage(), TestClock())
    log.delete_records(7)
    assert log.delete_records(3) == 7
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(21)
    log.append(build_batch([(b"k", b"v")], timestamp_ms=TestClock()()))
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(21)  # it is not synced, so nobody has seen it


def test_a_full_disk_leaves_the_start_where_it_was() -> None:
    """F12."""
    storage = ForgetfulStorage()
    log = filled(storage, TestClock())
    storage.remove("t-0/reserve")
    storage.free_bytes = 3
    with pytest.raises(KafkaStorageError):
        log.delete_records(7)
    assert log.log_start_offset == 0
    assert len(read_all(log)) == 20
    storage.free_bytes = None
    assert log.delete_records(7) == 7


def test_a_full_disk_can_be_freed_by_what_removes_records() -> None:
    """F12: the reserve gives the manifest its room, and is there again afterwards."""
    storage = ForgetfulStorage()
    log = filled(storage, TestClock())
    storage.free_bytes = 0
    assert log.delete_records(15) == 15
    assert storage.exists("t-0/reserve")
    assert log.append(build_batch([(b"k", b"v")], timestamp_ms=TestClock()())).base_offset == 20
    log.flush()
    again = PartitionLog.open(storage.power_cut(None), "t-0", CONFIG, TestClock())
    assert (again.log_start_offset, again.log_end_offset) == (15, 21)


def test_retention_by_time_removes_old_segments_and_keeps_the_rest() -> None:
    clock = TestClock()
    log = filled(ForgetfulStorage(), clock)
    log.update_config(dataclasses.replace(CONFIG, retention_ms=9_500))
    removed = log.enforce_retention()
    assert removed > 0
    oldest_allowed = clock() - 9_500
    batches = read_all(log)
    assert batches[-1][0].last_offset == 19
    assert all(h.max_timestamp >= oldest_allowed for h, _ in batches if h.base_offset >= log.log_start_offset + 2)
    assert log.enforce_retention() == 0


def test_retention_by_time_may_empty_the_log_and_offsets_go_on() -> None:
    storage, clock = ForgetfulStorage(), TestClock()
    log = filled(storage, clock)
    clock.now_ms += 10**9
    log.update_config(dataclasses.replace(CONFIG, retention_ms=1_000))
    assert log.enforce_retention() > 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
    again = PartitionLog.open(storage.power_cut(None), "t-0", log.config, clock)
    assert (again.log_start_offset, again.log_end_offset) == (20, 20)
    assert again.append(build_batch([(b"k", b"v")], timestamp_ms=clock())).base_offset == 20


def test_retention_by_size_keeps_at_least_that_much() -> None:
    log = filled(ForgetfulStorage(), TestClock())
    log.update_config(dataclasses.replace(CONFIG, retention_bytes=1_000))
    assert log.enforce_retention() > 0
    assert 1_000 <= log.size_bytes < 1_000 + 400


def test_compact_only_topics_are_not_touched_by_retention() -> None:
    log = filled(ForgetfulStorage(), TestClock())
    log.update_config(dataclasses.replace(CONFIG, retention_bytes=0, cleanup_policy=frozenset({"compact"})))
    assert log.enforce_retention() == 0


def test_unsynced_records_are_not_removed() -> None:
    clock = TestClock()
    log = PartitionLog.open(ForgetfulStorage(), "t-0", dataclasses.replace(CONFIG, retention_ms=10), clock)
    log.append(build_batch([(b"k", b"v")], timestamp_ms=clock()))
    clock.now_ms += 10_000
    assert log.enforce_retention() == 0


def test_the_files_of_removed_segments_are_gone() -> None:
    storage = ForgetfulStorage()
    log = filled(storage, TestClock())
    log.delete_records(15)
    names = [name for name in storage.list("t-0") if name[:20].isdecimal() and int(name[:20]) < 12]
    assert names == []


def test_producers_are_remembered_although_their_records_are_gone() -> None:
    """As Kafka: state outlives the records until it expires."""
    storage, clock = ForgetfulStorage(), TestClock()
    log = filled(storage, clock)
    numbered = build_batch([(b"k", b"v")], timestamp_ms=clock(), producer_id=4, producer_epoch=0, base_sequence=0)
    log.append(numbered)
    log.flush()
    log.delete_records(-1)
    again = PartitionLog.open(storage.power_cut(None), "t-0", CONFIG, clock)
    assert again.append(numbered).duplicate
