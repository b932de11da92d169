"""Transactions in one partition: markers, last stable offset, aborted lists, verification. SPEC S10; FAULTS F14, F15, F25, F26."""

from __future__ import annotations

import pytest

from atonce.log.config import LogConfig
from atonce.log.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin, Isolation
from atonce.records.record import build_batch, read_marker
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock, committed_records, read_all

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1)


@pytest.fixture
def storage() -> ForgetfulStorage:
    return ForgetfulStorage()


@pytest.fixture
def log(storage: ForgetfulStorage) -> PartitionLog:
    return PartitionLog.open(storage, "t-0", CONFIG, TestClock())


def batch(producer: int, sequence: int, *, epoch: int = 0, transactional: bool = True, value: bytes = b"v") -> bytes:
    return build_batch(
        [(b"k", value)],
        timestamp_ms=NOW,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def begin(log: PartitionLog, producer: int, *, epoch: int = 0, sequence: int = 0, value: bytes = b"v") -> int:
    guard = log.start_verification(producer, epoch, sequence, supports_epoch_bump=True)
    return log.append(batch(producer, sequence, epoch=epoch, value=value), guard=guard).base_offset


def visible(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in committed_records(log)]


def test_an_open_transaction_holds_back_the_last_stable_offset(log: PartitionLog) -> None:
    log.append(build_batch([(b"k", b"plain")], timestamp_ms=NOW))
    begin(log, 1)
    log.append(build_batch([(b"k", b"later")], timestamp_ms=NOW))
    log.flush()
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert visible(log) == [b"plain"]
    assert len(read_all(log)) == 3, "read_uncommitted sees all of it (F25)"


def test_the_first_of_several_open_transactions_counts(log: PartitionLog) -> None:
    begin(log, 1)
    begin(log, 2)
    log.flush()
    log.append_marker(1, 1, True, 0)
    log.flush()
    assert log.last_stable_offset == 1
    log.append_marker(2, 1, True, 0)
    log.flush()
    assert log.last_stable_offset == 4


def test_a_marker_decides_only_once_it_is_synced(log: PartitionLog) -> None:
    """F14: until then a crash could take the decision back, so nobody may have seen it."""
    begin(log, 1, value=b"a")
    log.flush()
    log.append_marker(1, 1, True, 0)
    assert log.last_stable_offset == 0
    assert visible(log) == []
    log.flush()
    assert log.last_stable_offset == 2
    assert visible(log) == [b"a"]


def test_aborted_records_are_listed_for_read_committed_only(log: PartitionLog) -> None:
    """F25."""
    begin(log, 1, value=b"aborted")
    log.append(build_batch([(b"k", b"plain")], timestamp_ms=NOW))
    log.append_marker(1, 1, False, 0)
    log.flush()
    assert log.read(0, 1000, isolation=Isolation.READ_COMMITTED).aborted == ((1, 0),)
    assert log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).aborted == ()
    assert visible(log) == [b"plain"]


def test_aborted_lists_cover_only_the_range_that_is_read(storage: ForgetfulStorage) -> None:
    config = LogConfig(retention_ms=-1, index_interval_bytes=1)
    log = PartitionLog.open(storage, "t-0", config, TestClock())
    for producer in range(10, 20):
        begin(log, producer)
        log.append_marker(producer, 1, False, 0)
    log.flush()
    size = log.size_bytes // 10
    for index in (0, 4, 9):
        aborted = log.read(2 * index, size, isolation=Isolation.READ_COMMITTED).aborted
        assert (10 + index, 2 * index) in aborted
        assert len(aborted) <= 2, aborted


def test_a_transaction_may_span_segments(storage: ForgetfulStorage) -> None:
    log = PartitionLog.open(storage, "t-0", LogConfig(retention_ms=-1, segment_bytes=200), TestClock())
    begin(log, 1, value=b"a" * 60)
    for sequence in range(1, 6):
        log.append(batch(1, sequence, value=b"a" * 60))
    log.append_marker(1, 1, False, 0)
    log.append(build_batch([(b"k", b"plain")], timestamp_ms=NOW))
    log.flush()
    assert log.segment_count > 3
    assert log.read(0, 100, isolation=Isolation.READ_COMMITTED).aborted == ((1, 0),)
    assert visible(log) == [b"plain"]
    log.close()
    again = PartitionLog.open(storage.power_cut(None), "t-0", log.config, TestClock())
    assert visible(again) == [b"plain"]


def test_markers_take_offsets_and_carry_the_coordinator(log: PartitionLog) -> None:
    begin(log, 1)
    result = log.append_marker(1, 0, True, 9)
    assert result.base_offset == result.last_offset == 1
    log.flush()
    header, data = read_all(log)[-1]
    assert header.is_control and header.is_transactional
    marker = read_marker(data)
    assert marker is not None and marker.commit and marker.coordinator_epoch == 9


def test_plain_data_inside_a_transaction_is_refused(log: PartitionLog) -> None:
    begin(log, 1)
    with pytest.raises(InvalidTxnState, match="without the transactional flag") as caught:
        log.append(batch(1, 1, transactional=False))
    assert caught.value.code == 48


def test_a_transaction_cannot_begin_unverified(log: PartitionLog) -> None:
    """F15: a delayed Produce must not leave a hanging transaction."""
    with pytest.raises(InvalidTxnState, match="has not confirmed"):
        log.append(batch(1, 0))
    assert log.last_stable_offset == log.log_end_offset == 0


def test_a_guard_ends_with_the_marker(log: PartitionLog) -> None:
    """F15: verified, then aborted by a timeout, then the delayed Produce arrives."""
    guard = log.start_verification(1, 0, 0, supports_epoch_bump=False)
    log.append_marker(1, 0, False, 0)
    with pytest.raises(InvalidTxnState):
        log.append(batch(1, 0), guard=guard)


def test_a_foreign_guard_is_refused(log: PartitionLog) -> None:
    log.start_verification(1, 0, 0, supports_epoch_bump=True)
    other = log.start_verification(2, 0, 0, supports_epoch_bump=True)
    with pytest.raises(InvalidTxnState):
        log.append(batch(1, 0), guard=other)


def test_no_guard_is_needed_while_the_transaction_is_open(log: PartitionLog) -> None:
    begin(log, 1)
    assert log.start_verification(1, 0, 1, supports_epoch_bump=True) is None
    assert log.has_open_transaction(1, 0)
    assert not log.has_open_transaction(1, 1)
    assert log.append(batch(1, 1)).base_offset == 1


def test_first_batch_of_a_new_producer_begins_at_zero_under_version_two(log: PartitionLog) -> None:
    guard = log.start_verification(1, 0, 4, supports_epoch_bump=True)
    with pytest.raises(OutOfOrderSequence, match="begins at 0"):
        log.append(batch(1, 4), guard=guard)


def test_batches_that_overtook_each_other_during_verification_are_put_right(log: PartitionLog) -> None:
    first = log.start_verification(1, 0, 5, supports_epoch_bump=False)
    again = log.start_verification(1, 0, 3, supports_epoch_bump=False)
    assert first is again
    with pytest.raises(OutOfOrderSequence, match="earliest"):
        log.append(batch(1, 5), guard=first)
    assert log.append(batch(1, 3), guard=first).base_offset == 0


def test_marker_with_an_old_epoch_is_refused(log: PartitionLog) -> None:
    """F15, F16."""
    begin(log, 1, epoch=5)
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(1, 4, True, 0)
    with pytest.raises(InvalidProducerEpoch, match="transaction version 2"):
        log.append_marker(1, 5, True, 0, transaction_version=2)
    log.append_marker(1, 6, True, 0, transaction_version=2)
    log.append_marker(1, 6, True, 0, transaction_version=2)  # a retry ends nothing and is taken


def test_marker_of_a_replaced_coordinator_is_refused(log: PartitionLog) -> None:
    begin(log, 1)
    log.append_marker(1, 1, True, 7)
    with pytest.raises(TransactionCoordinatorFenced) as caught:
        log.append_marker(1, 2, True, 6)
    assert caught.value.code == 52


def test_after_a_version_two_marker_the_next_transaction_begins_at_zero(log: PartitionLog) -> None:
    begin(log, 1)
    log.append_marker(1, 1, True, 0, transaction_version=2)
    with pytest.raises(InvalidProducerEpoch):
        begin(log, 1, epoch=0, sequence=1)
    assert begin(log, 1, epoch=1, sequence=0) == 2


def test_a_zombie_task_of_the_last_batch_is_refused_after_the_marker(log: PartitionLog) -> None:
    """F16: the marker carries the next epoch, and the old one's verification is gone."""
    begin(log, 1)
    log.append_marker(1, 1, True, 0, transaction_version=2)
    with pytest.raises(InvalidTxnState):
        log.append(batch(1, 1))
    assert log.log_end_offset == 2


def test_coordinators_write_transactional_offsets_without_sequences(log: PartitionLog) -> None:
    offsets = build_batch([(b"g", b"5")], timestamp_ms=NOW, producer_id=3, producer_epoch=2, transactional=True)
    log.append(offsets, origin=AppendOrigin.COORDINATOR)
    log.append(offsets, origin=AppendOrigin.COORDINATOR)
    assert log.has_open_transaction(3, 2)
    stale = build_batch([(b"g", b"5")], timestamp_ms=NOW, producer_id=3, producer_epoch=1, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        log.append(stale, origin=AppendOrigin.COORDINATOR)
    log.append_marker(3, 2, True, 0)
    log.flush()
    assert log.last_stable_offset == 3


@pytest.mark.parametrize("flushed", [True, False])
def test_open_transactions_survive_a_crash(log: PartitionLog, storage: ForgetfulStorage, flushed: bool) -> None:
    """F14: the coordinator finds the transaction as it was and ends it."""
    begin(log, 1, value=b"a")
    log.flush()
    log.append_marker(1, 1, True, 0)
    if flushed:
        log.flush()
    again = PartitionLog.open(storage.power_cut(None), "t-0", CONFIG, TestClock())
    assert again.has_open_transaction(1, 0) is not flushed
    assert visible(again) == ([b"a"] if flushed else [])
    again.append_marker(1, 1, True, 0)
    again.flush()
    assert visible(again) == [b"a"]
    assert again.last_stable_offset == again.high_watermark


def test_describe_producers(log: PartitionLog) -> None:
    begin(log, 1, epoch=3)
    (info,) = log.producers()
    assert (info.producer_id, info.producer_epoch, info.last_sequence) == (1, 3, 0)
    assert (info.last_timestamp_ms, info.coordinator_epoch, info.current_txn_start_offset) == (NOW, -1, 0)
    log.append_marker(1, 4, True, 2)
    (info,) = log.producers()
    assert (info.coordinator_epoch, info.current_txn_start_offset) == (2, -1)
