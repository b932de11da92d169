"""Idempotent producers, rule by rule. SPEC S8; FAULTS F3, F16, F17."""

from __future__ import annotations

import dataclasses

import pytest

from atonce.log.config import LogConfig
from atonce.log.errors import InvalidProducerEpoch, OutOfOrderSequence
from atonce.log.partition_log import PartitionLog
from atonce.records.batch import MAX_SEQUENCE
from atonce.records.record import build_batch
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1)


def batch(sequence: int, *, records: int = 1, epoch: int = 0, producer: int = 7) -> bytes:
    values = [(None, b"%d-%d-%d" % (epoch, sequence, index)) for index in range(records)]
    return build_batch(values, timestamp_ms=NOW, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@pytest.fixture
def storage() -> ForgetfulStorage:
    return ForgetfulStorage()


@pytest.fixture
def log(storage: ForgetfulStorage) -> PartitionLog:
    return PartitionLog.open(storage, "t-0", CONFIG, TestClock())


def test_duplicate_batch_returns_original_offset(log: PartitionLog) -> None:
    """F3: the ack was lost, the client sends again."""
    log.append(batch(0, records=3))
    second = log.append(batch(3))
    again = log.append(batch(0, records=3))
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 2, True)
    assert log.append(batch(3)).base_offset == second.base_offset == 3
    assert log.log_end_offset == 4


def test_a_duplicate_waits_for_the_flush_of_the_original(log: PartitionLog) -> None:
    """F11: otherwise the retry would be acknowledged although a crash could still take the batch back."""
    log.append(batch(0))
    assert log.append(batch(0)).flush_required
    log.flush()
    assert not log.append(batch(0)).flush_required


def test_five_batches_are_remembered(log: PartitionLog) -> None:
    for sequence in range(6):
        log.append(batch(sequence))
    assert [log.append(batch(sequence)).base_offset for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequence):
        log.append(batch(0))


def test_a_gap_is_refused(log: PartitionLog) -> None:
    """F17: an earlier request in flight failed, the later one must not overtake it."""
    log.append(batch(0))
    with pytest.raises(OutOfOrderSequence, match="sequence 2 at offset 1; expected 1") as caught:
        log.append(batch(2))
    assert caught.value.code == 45
    assert log.append(batch(1)).base_offset == 1


def test_a_batch_that_overlaps_without_being_equal_is_refused(log: PartitionLog) -> None:
    log.append(batch(0, records=3))
    with pytest.raises(OutOfOrderSequence):
        log.append(batch(0, records=2))


def test_sequences_wrap_from_the_largest_to_zero(log: PartitionLog) -> None:
    log.append(batch(MAX_SEQUENCE - 1, records=2))
    assert log.append(batch(0)).base_offset == 2
    assert log.append(batch(MAX_SEQUENCE - 1, records=2)).duplicate


def test_a_batch_may_wrap_in_its_middle(log: PartitionLog) -> None:
    log.append(batch(MAX_SEQUENCE, records=3))
    assert log.producers()[0].last_sequence == 1
    assert log.append(batch(2)).base_offset == 3


def test_an_unknown_producer_may_begin_anywhere(log: PartitionLog) -> None:
    """As Kafka: its earlier records may have been removed by retention."""
    assert log.append(batch(41)).base_offset == 0
    assert log.append(batch(42)).base_offset == 1


def test_zombie_is_fenced_after_epoch_bump(log: PartitionLog) -> None:
    """F16."""
    log.append(batch(0, epoch=3))
    log.append(batch(0, epoch=4))
    with pytest.raises(InvalidProducerEpoch, match="epoch 4 has replaced it") as caught:
        log.append(batch(1, epoch=3))
    assert caught.value.code == 47


def test_a_new_epoch_begins_at_sequence_zero(log: PartitionLog) -> None:
    log.append(batch(0))
    with pytest.raises(OutOfOrderSequence, match="begins at 0"):
        log.append(batch(1, epoch=1))
    assert log.append(batch(0, epoch=1)).duplicate is False
    assert log.append(batch(0, epoch=1)).duplicate is True


def test_a_refused_batch_changes_nothing(log: PartitionLog) -> None:
    log.append(batch(0))
    before = log.producers()
    for bad in (batch(5), batch(1, epoch=1)):
        with pytest.raises(OutOfOrderSequence):
            log.append(bad)
    assert log.producers() == before
    assert log.log_end_offset == 1


@pytest.mark.parametrize("how", ["closed", "killed", "power cut"])
def test_state_survives_a_restart(log: PartitionLog, storage: ForgetfulStorage, how: str) -> None:
    """All five batches, not only the last as in Kafka: any retry in flight is recognised."""
    for sequence in range(7):
        log.append(batch(sequence))
    log.flush()
    if how == "closed":
        log.close()
    after = storage.power_cut(None) if how == "power cut" else storage.killed()
    again = PartitionLog.open(after, "t-0", CONFIG, TestClock())
    assert [again.append(batch(sequence)).base_offset for sequence in range(2, 7)] == [2, 3, 4, 5, 6]
    with pytest.raises(OutOfOrderSequence):
        again.append(batch(8))
    assert again.append(batch(7)).base_offset == 7


def test_idle_producers_expire(storage: ForgetfulStorage) -> None:
    clock = TestClock()
    config = dataclasses.replace(CONFIG, producer_id_expiration_ms=1000)
    log = PartitionLog.open(storage, "t-0", config, clock)
    log.append(batch(0))
    clock.now_ms += 999
    assert log.expire_producers() == 0
    clock.now_ms += 1
    assert log.expire_producers() == 1
    assert log.producers() == []
    assert log.append(batch(5)).base_offset == 1, "an expired producer is an unknown one"


def test_copying_old_data_does_not_make_a_producer_look_idle(storage: ForgetfulStorage) -> None:
    clock = TestClock()
    log = PartitionLog.open(storage, "t-0", dataclasses.replace(CONFIG, producer_id_expiration_ms=1000), clock)
    old = build_batch([(None, b"x")], timestamp_ms=NOW - 10**9, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append(old)
    assert log.expire_producers() == 0
    assert log.append(old).duplicate


def test_a_producer_with_an_open_transaction_never_expires(storage: ForgetfulStorage) -> None:
    clock = TestClock()
    log = PartitionLog.open(storage, "t-0", dataclasses.replace(CONFIG, producer_id_expiration_ms=1000), clock)
    guard = log.start_verification(7, 0, 0, supports_epoch_bump=True)
    log.append(
        build_batch(
            [(None, b"x")], timestamp_ms=NOW, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        ),
        guard=guard,
    )
    clock.now_ms += 5000
    assert log.expire_producers() == 0
