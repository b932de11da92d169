"""Look-ups by timestamp, as ListOffsets asks."""

from __future__ import annotations

import pytest

from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin
from atonce.records.batch import assemble, read_header
from atonce.records.compression import Compression
from atonce.records.record import Record, build_batch
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1, segment_bytes=600, index_interval_bytes=100)


def at(*times: int, compression: Compression = Compression.NONE) -> bytes:
    records = [Record(0, NOW + time, b"k", b"x" * 30, ()) for time in times]
    return build_batch(records, timestamp_ms=NOW, compression=compression)


@pytest.fixture(params=["open", "reopened"])
def log(request: pytest.FixtureRequest) -> PartitionLog:
    storage = ForgetfulStorage()
    log = PartitionLog.open(storage, "t-0", CONFIG, TestClock())
    for index in range(20):
        log.append(at(index * 10, index * 10 + 5, compression=Compression(index % 5)))
    log.flush()
    assert log.segment_count > 3
    if request.param == "reopened":
        log.close()
        return PartitionLog.open(storage.power_cut(None), "t-0", CONFIG, TestClock())
    return log


def test_the_first_record_at_or_after_a_timestamp(log: PartitionLog) -> None:
    for index in range(20):
        for time, offset in ((index * 10, 2 * index), (index * 10 + 1, 2 * index + 1), (index * 10 + 5, 2 * index + 1)):
            found = log.offset_for_timestamp(NOW + time)
            assert found is not None and found.offset == offset, (time, found)
            assert found.timestamp_ms >= NOW + time
            assert found.leader_epoch == 0


def test_before_and_after_everything(log: PartitionLog) -> None:
    found = log.offset_for_timestamp(0)
    assert found is not None and found.offset == 0
    assert log.offset_for_timestamp(NOW + 10_000) is None


def test_deleted_records_are_not_found(log: PartitionLog) -> None:
    log.delete_records(5)
    found = log.offset_for_timestamp(0)
    assert found is not None and found.offset == 5


def test_the_largest_timestamp(log: PartitionLog) -> None:
    found = log.max_timestamp()
    assert found is not None and (found.offset, found.timestamp_ms) == (39, NOW + 195)
    log.append(at(1000, 700))
    log.append(at(20))
    found = log.max_timestamp()
    assert found is not None and (found.offset, found.timestamp_ms) == (40, NOW + 1000)


def test_timestamps_out_of_order(log: PartitionLog) -> None:
    log.append(at(900, 3))
    log.append(at(400))
    found = log.offset_for_timestamp(NOW + 300)
    assert found is not None and found.offset == 40, "the first by offset, not the nearest by time"


def test_an_empty_log_has_no_timestamps() -> None:
    log = PartitionLog.open(ForgetfulStorage(), "t-0", CONFIG, TestClock())
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


def test_a_batch_that_cannot_be_unpacked_counts_as_one_record_at_its_first_offset() -> None:
    """From a log of before batches were looked at: asking by time closed the connection."""
    log = PartitionLog.open(ForgetfulStorage(), "t-0", CONFIG, TestClock())
    log.append(at(0))
    header = read_header(at(10, 20, 30))
    lie = assemble(header._replace(attributes=int(Compression.ZSTD)), b"no zstd")
    log.append(lie, origin=AppendOrigin.COORDINATOR)
    log.flush()
    found = log.offset_for_timestamp(NOW + 15)
    assert found is not None and (found.offset, found.timestamp_ms) == (1, NOW + 30)
    newest = log.max_timestamp()
    assert newest is not None and newest.offset == 1
