"""The transaction coordinator: ids, epochs, fencing, the two protocols, time-outs (S9, S10)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import OFFSETS_PARTITION, ProducerIdAndEpoch, StorageFailed, TopicPartition
from atonce.coordinator.groups.states import TransactionState
from atonce.coordinator.transactions.records import TransactionRecord, encode
from atonce.coordinator.transactions.transactions import TransactionConfig
from tests.simulation.coordinator.desk import Desk, Written

OK = ErrorCode.none
OUT = TopicPartition("out", 0)
LAST_EPOCH = 32_766


@pytest.fixture
def desk() -> Desk:
    return Desk()


def started(desk: Desk, name: str = "t", **options: int) -> ProducerIdAndEpoch:
    answer = desk.init(name, **options)
    assert answer.error is OK
    return ProducerIdAndEpoch(answer.producer_id, answer.epoch)


def opened(desk: Desk, name: str = "t", **options: int) -> ProducerIdAndEpoch:
    producer = started(desk, name, **options)
    assert desk.add(name, producer, OUT) is OK
    return producer


def state(desk: Desk, name: str = "t") -> TransactionState:
    metadata = desk.transactions.describe(name)
    assert metadata is not None
    return metadata.state


def at_epoch(desk: Desk, epoch: int, name: str = "t") -> ProducerIdAndEpoch:
    """A producer whose epoch has got that far, without the thousands of transactions on the way."""
    producer = started(desk, name)
    metadata = desk.transactions.describe(name)
    assert metadata is not None
    record = TransactionRecord(name, replace(metadata, producer_epoch=epoch))
    desk.transaction_journal.append([encode(record)])
    desk.transaction_journal.flush()
    desk.transactions.apply(record)
    return ProducerIdAndEpoch(producer.producer_id, epoch)


def test_prepared_transaction_completes_once_its_markers_are_written(desk: Desk) -> None:
    producer = opened(desk)
    assert desk.end("t", producer).error is OK
    assert state(desk) is TransactionState.PREPARE_COMMIT
    desk.finish()
    assert state(desk) is TransactionState.COMPLETE_COMMIT
    assert [(w.producer, w.commit) for w in desk.data[OUT]] == [((producer.producer_id, 1), True)]


def test_while_markers_are_written_the_producer_is_told_to_wait(desk: Desk) -> None:
    producer = opened(desk)
    following = desk.end("t", producer)
    waiting = ErrorCode.concurrent_transactions
    assert desk.add("t", ProducerIdAndEpoch(following.producer_id, following.epoch), OUT) is waiting
    assert desk.init("t").error is waiting
    assert desk.end("t", producer).error is waiting
    desk.finish()
    assert desk.add("t", ProducerIdAndEpoch(following.producer_id, following.epoch), OUT) is OK


def test_restart_finishes_what_was_decided(desk: Desk) -> None:
    """F14."""
    producer = opened(desk)
    desk.end("t", producer, commit=False)
    desk.restart()
    assert state(desk) is TransactionState.PREPARE_ABORT
    desk.finish()
    assert state(desk) is TransactionState.COMPLETE_ABORT
    assert desk.data[OUT][-1].commit is False


def test_zombie_is_fenced_after_epoch_bump(desk: Desk) -> None:
    """F16."""
    old = opened(desk)
    assert desk.init("t").error is ErrorCode.concurrent_transactions
    desk.finish()
    new = started(desk)
    assert new == (old.producer_id, old.epoch + 2)
    assert desk.end("t", old).error is ErrorCode.producer_fenced
    assert desk.add("t", old, OUT) is ErrorCode.producer_fenced


def test_open_transaction_is_aborted_when_its_time_is_over(desk: Desk) -> None:
    """F19, F26."""
    producer = opened(desk, timeout_ms=5_000)
    desk.advance(5_000)
    assert state(desk) is TransactionState.ONGOING
    desk.advance(1)
    assert state(desk) is TransactionState.PREPARE_ABORT
    desk.finish()
    assert desk.data[OUT][-1] == Written(ProducerIdAndEpoch(producer.producer_id, 1), commit=False)
    assert desk.end("t", producer, commit=True).error is ErrorCode.invalid_txn_state
    assert desk.add("t", producer, OUT) is ErrorCode.producer_fenced


def test_time_runs_from_the_first_partition_and_over_a_restart(desk: Desk) -> None:
    producer = opened(desk, timeout_ms=5_000)
    desk.advance(3_000)
    assert desk.add("t", producer, TopicPartition("out", 1)) is OK
    desk.restart()
    desk.advance(2_001)
    assert state(desk) is TransactionState.PREPARE_ABORT


def test_commit_and_timeout_cannot_both_happen(desk: Desk) -> None:
    producer = opened(desk, timeout_ms=5_000)
    assert desk.end("t", producer).error is OK
    desk.advance(60_000)
    desk.finish()
    assert state(desk) is TransactionState.COMPLETE_COMMIT


def test_last_epoch_is_followed_by_a_new_producer_id(desk: Desk) -> None:
    producer = at_epoch(desk, LAST_EPOCH)
    desk.add("t", producer, OUT)
    answer = desk.end("t", producer)
    assert answer.error is OK
    assert answer.producer_id != producer.producer_id
    assert answer.epoch == 0
    following = ProducerIdAndEpoch(answer.producer_id, answer.epoch)
    # It is told to wait, not that its new id is wrong.
    assert desk.add("t", following, OUT) is ErrorCode.concurrent_transactions
    desk.restart()
    desk.finish()
    assert desk.data[OUT][-1].producer == (producer.producer_id, LAST_EPOCH + 1)
    assert desk.end("t", producer) == answer
    assert desk.end("t", producer, commit=False).error is ErrorCode.invalid_txn_state
    assert desk.add("t", following, OUT) is OK


def test_timeout_at_the_last_epoch_rotates_the_producer_id(desk: Desk) -> None:
    producer = at_epoch(desk, LAST_EPOCH)
    desk.add("t", producer, OUT)
    desk.advance(60_001)
    desk.finish()
    metadata = desk.transactions.describe("t")
    assert metadata is not None
    assert metadata.producer_id != producer.producer_id
    assert metadata.producer_epoch == 0


def test_init_at_the_last_epoch_rotates_the_producer_id(desk: Desk) -> None:
    producer = at_epoch(desk, LAST_EPOCH)
    rotated = desk.init("t", expected=producer)
    assert rotated.error is OK
    assert rotated.producer_id != producer.producer_id
    assert rotated.epoch == 0
    assert desk.init("t", expected=producer) == rotated, "the retry, as the client never saw the answer"


def test_retry_of_a_producers_own_bump_is_answered_alike_after_a_restart(desk: Desk) -> None:
    producer = started(desk)
    bumped = desk.init("t", expected=producer)
    desk.restart()
    assert desk.init("t", expected=producer) == bumped


def test_failed_journal_decides_nothing(desk: Desk) -> None:
    """F12: a full disk."""
    producer = opened(desk)
    desk.transaction_journal.full = True
    with pytest.raises(StorageFailed):
        desk.end("t", producer)
    assert state(desk) is TransactionState.ONGOING
    assert desk.markers == []
    desk.transaction_journal.full = False
    assert desk.end("t", producer).error is OK


def test_timeout_that_cannot_be_journaled_stays_due(desk: Desk) -> None:
    opened(desk, timeout_ms=1_000)
    desk.transaction_journal.full = True
    with pytest.raises(StorageFailed):
        desk.advance(2_000)
    desk.transaction_journal.full = False
    desk.advance(1)
    assert state(desk) is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize(("version", "answer"), [(1, ErrorCode.producer_fenced), (2, ErrorCode.none)])
def test_producer_that_was_fenced_by_time_goes_on_only_under_transaction_version_2(
    version: int, answer: ErrorCode
) -> None:
    """As Apache Kafka of either version answers: interop/test_recovery_same_answers.py."""
    desk = Desk(TransactionConfig(transaction_version=version))
    producer = opened(desk, timeout_ms=1_000)
    desk.advance(2_000)
    desk.finish()
    assert desk.init("t", expected=producer).error is answer


def test_producer_ids_are_never_handed_out_twice(desk: Desk) -> None:
    seen: set[int] = set()
    for _ in range(5):
        for _ in range(1_500):
            producer_id = desk.init(None).producer_id
            assert producer_id not in seen
            seen.add(producer_id)
        desk.restart(lost=(10, 10))


def test_unused_transactional_id_is_forgotten_and_an_open_one_is_not() -> None:
    desk = Desk(TransactionConfig(transactional_id_expiration_ms=10_000))
    started(desk, "idle")
    opened(desk, "open", timeout_ms=900_000)
    desk.advance(10_000)
    assert desk.transactions.describe("idle") is None
    assert state(desk, "open") is TransactionState.ONGOING
    desk.restart()
    assert desk.transactions.describe("idle") is None


def test_forgotten_id_starts_again_with_a_producer_id_of_its_own() -> None:
    desk = Desk(TransactionConfig(transactional_id_expiration_ms=10_000))
    before = started(desk)
    desk.advance(10_000)
    after = started(desk)
    assert after.producer_id != before.producer_id
    assert desk.end("t", before).error is ErrorCode.invalid_producer_id_mapping


def test_verification_needs_an_open_transaction_with_that_partition(desk: Desk) -> None:
    """F15: what keeps a delayed Produce from leaving a hanging transaction."""
    producer = opened(desk)
    other = TopicPartition("out", 1)
    answers = desk.transactions.verify_partitions("t", producer, [OUT, other])
    assert answers == {OUT: OK, other: ErrorCode.transaction_abortable}
    desk.end("t", producer, version=1)
    assert desk.transactions.verify_partitions("t", producer, [OUT])[OUT] is ErrorCode.concurrent_transactions
    desk.finish()
    assert desk.transactions.verify_partitions("t", producer, [OUT])[OUT] is ErrorCode.transaction_abortable


def test_protocol_v1_keeps_the_epoch(desk: Desk) -> None:
    producer = opened(desk)
    answer = desk.end("t", producer, version=1)
    assert (answer.error, answer.producer_id, answer.epoch) == (OK, -1, -1)
    desk.finish()
    assert desk.data[OUT][-1].producer == producer
    assert desk.add("t", producer, OUT, version=1) is OK


def test_offsets_partition_is_marked_like_any_other(desk: Desk) -> None:
    producer = started(desk)
    desk.add("t", producer, OUT, OFFSETS_PARTITION)
    desk.end("t", producer)
    desk.finish()
    assert desk.group_journal.batches[-1].marker is True
    assert desk.data[OUT][-1].commit is True
