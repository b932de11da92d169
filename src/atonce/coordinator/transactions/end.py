"""How a transaction ends: EndTxn under both transaction protocols, and the abort that fences a producer.

Under protocol v2 every end bumps the epoch, so an EndTxn with the epoch before the current one is the retry of the last
end, and one with the current epoch begins and ends a transaction of its own:

                    abort                 commit
                    retry     current     retry     current
    Empty           fenced    aborts      fenced    INVALID_TXN_STATE
    CompleteAbort   same      aborts      INVALID   INVALID_TXN_STATE
    CompleteCommit  INVALID   aborts      same      INVALID_TXN_STATE

While the markers of the last end are being written, a retry is told CONCURRENT_TRANSACTIONS. One with the current epoch
has been told that the last transaction ended, and goes on: Kafka, whose markers are there within a millisecond, would
fence it in that moment; here it is decided when they are (`Coordination.end_transaction` waits for them).

Under v1 the epoch stays, a retry looks like the first, and only the same direction is answered alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Decision,
    ProducerIdAndEpoch,
    WriteMarkers,
)
from atonce.coordinator.groups.states import TransactionState
from atonce.coordinator.transactions.records import ProducerIdsRecord, TransactionMetadata, TransactionRecord

Allocate = Callable[[], tuple[int, tuple[ProducerIdsRecord, ...]]]

# The highest epoch that a client is ever given; the one above it is kept for ending its last transaction.
LAST_CLIENT_EPOCH = 32766
_EPOCH_BUMP = 2  # the transaction version from which every end bumps the epoch

_PREPARING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}


@dataclass(frozen=True, slots=True)
class EndTxnAnswer:
    """Under protocol v2 a success carries the producer id and epoch of the next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


def decide_end(
    now_ms: int,
    metadata: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    transaction_version: int,
    allocate: Allocate,
) -> Decision[EndTxnAnswer]:
    if transaction_version < _EPOCH_BUMP:
        return _end_v1(now_ms, metadata, producer, commit, transaction_version)
    return _end_v2(now_ms, metadata, producer, commit, allocate)


def _end_v1(
    now_ms: int, metadata: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool, version: int
) -> Decision[EndTxnAnswer]:
    if metadata.producer_id != producer.producer_id:
        return _error(ErrorCode.invalid_producer_id_mapping)
    if metadata.producer_epoch != producer.epoch:
        return _error(ErrorCode.producer_fenced)
    if metadata.state in _PREPARING:
        return _error(ErrorCode.concurrent_transactions)
    if metadata.state is TransactionState.ONGOING:
        prepared = replace(_prepare(now_ms, metadata, commit), client_version=version)
        return _decided(prepared, EndTxnAnswer(ErrorCode.none))
    same_direction = _COMPLETE.get(metadata.state) is commit
    return _error(ErrorCode.none if same_direction else ErrorCode.invalid_txn_state)


def _end_v2(
    now_ms: int, metadata: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool, allocate: Allocate
) -> Decision[EndTxnAnswer]:
    retry_of_last_epoch = (
        metadata.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_CLIENT_EPOCH
        and metadata.producer_epoch == 0
    )
    retry = retry_of_last_epoch or metadata.producer_epoch == producer.epoch + 1
    current = metadata.producer_epoch == producer.epoch
    if metadata.producer_id != producer.producer_id and not retry_of_last_epoch:
        return _error(ErrorCode.invalid_producer_id_mapping)
    if metadata.state in _PREPARING:
        return _error(ErrorCode.concurrent_transactions if retry or current else ErrorCode.producer_fenced)
    completed = _COMPLETE.get(metadata.state)  # whether it committed; None if nothing was completed
    if not current and not (retry and completed is not None):
        return _error(ErrorCode.producer_fenced)
    if retry:
        if completed is commit:
            return Decision(EndTxnAnswer(ErrorCode.none, metadata.producer_id, metadata.producer_epoch))
        return _error(ErrorCode.invalid_txn_state)
    if metadata.state is not TransactionState.ONGOING:
        if commit:
            return _error(ErrorCode.invalid_txn_state)
        # An abort with nothing in it: the producer does not know whether its first Produce arrived.
        metadata = replace(metadata, start_ms=now_ms)
    prepared, allocated = _bump(_prepare(now_ms, metadata, commit), allocate)
    rotated = prepared.next_producer_id != NO_PRODUCER_ID
    answer = EndTxnAnswer(
        ErrorCode.none,
        prepared.next_producer_id if rotated else prepared.producer_id,
        0 if rotated else prepared.producer_epoch,
    )
    return _decided(prepared, answer, allocated)


def fence(now_ms: int, metadata: TransactionMetadata, version: int, allocate: Allocate) -> Decision[None]:
    """Abort an open transaction whose producer is gone or replaced. The bumped epoch is told to nobody.

    Under transaction version 2 of the broker the producer itself may go on from there, as after an end it asked for;
    under 1 it is fenced for good.
    """
    prepared = _prepare(now_ms, metadata, commit=False)
    if version < _EPOCH_BUMP:
        epoch = prepared.producer_epoch + 1
        prepared = replace(
            prepared, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH, client_version=version
        )
        allocated: tuple[ProducerIdsRecord, ...] = ()
    else:
        prepared, allocated = _bump(prepared, allocate)
    records = (*allocated, TransactionRecord(prepared.transactional_id, prepared))
    return Decision(None, records, (markers_of(prepared),))


def markers_of(metadata: TransactionMetadata) -> WriteMarkers:
    return WriteMarkers(
        metadata.transactional_id,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.state is TransactionState.PREPARE_COMMIT,
        metadata.partitions,
        metadata.client_version,
    )


def _prepare(now_ms: int, metadata: TransactionMetadata, commit: bool) -> TransactionMetadata:
    return replace(
        metadata,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        previous_producer_id=metadata.producer_id,
        last_update_ms=now_ms,
    )


def _bump(
    prepared: TransactionMetadata, allocate: Allocate
) -> tuple[TransactionMetadata, tuple[ProducerIdsRecord, ...]]:
    """The markers carry the next epoch, so whatever still comes with the old one is refused by the partitions.

    After the last epoch comes a new producer id; its transaction ends under the epoch that no client is given.
    """
    next_producer_id = NO_PRODUCER_ID
    allocated: tuple[ProducerIdsRecord, ...] = ()
    if prepared.producer_epoch >= LAST_CLIENT_EPOCH:
        next_producer_id, allocated = allocate()
    bumped = replace(
        prepared,
        producer_epoch=prepared.producer_epoch + 1,
        last_producer_epoch=prepared.producer_epoch,
        next_producer_id=next_producer_id,
        client_version=_EPOCH_BUMP,
    )
    return bumped, allocated


def _decided(
    prepared: TransactionMetadata, answer: EndTxnAnswer, allocated: tuple[ProducerIdsRecord, ...] = ()
) -> Decision[EndTxnAnswer]:
    records = (*allocated, TransactionRecord(prepared.transactional_id, prepared))
    return Decision(answer, records, (markers_of(prepared),))


def _error(error: ErrorCode) -> Decision[EndTxnAnswer]:
    return Decision(EndTxnAnswer(error))
