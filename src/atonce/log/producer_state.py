"""What a partition remembers about each idempotent producer, and the rules for its next batch.

Kafka's ProducerAppendInfo as pure functions: the entry as it is, a batch, and out comes the entry as it would be, or a
refusal. Only the log puts the new entry in place, after the bytes are written: nothing is ever half-changed.
"""

from __future__ import annotations

from typing import NamedTuple

from atonce.log.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from atonce.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader

BATCHES_REMEMBERED = 5
NO_OFFSET = -1


class BatchMemory(NamedTuple):
    """One appended batch, to recognise its repetition."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """One producer in one partition."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    # By the broker's clock, not the record's timestamp: old data being copied must not make its producer look idle.
    last_append_ms: int = -1
    txn_first_offset: int = NO_OFFSET
    batches: tuple[BatchMemory, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def in_transaction(self) -> bool:
        return self.txn_first_offset != NO_OFFSET

    def find_duplicate(self, header: BatchHeader) -> BatchMemory | None:
        """The batch that this one repeats, if it is among the five."""
        if header.producer_epoch != self.epoch:
            return None
        last = header.last_sequence
        for known in self.batches:
            if known.first_sequence == header.base_sequence and known.last_sequence == last:
                return known
        return None


class Verification(NamedTuple):
    """A transaction's first write was announced (see VerificationGuard); the lowest sequence seen since."""

    guard: object
    producer_epoch: int
    lowest_sequence: int
    supports_epoch_bump: bool
    since_ms: int = 0


def check_sequence(entry: ProducerEntry, header: BatchHeader, offset: int, verification: Verification | None) -> None:
    """Raise unless a client's batch is the producer's next one."""
    sequence = header.base_sequence
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpoch(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} at offset {offset}; "
            f"epoch {entry.epoch} has replaced it"
        )
    if verification is not None:
        if verification.supports_epoch_bump and sequence != 0 and entry.epoch == NO_PRODUCER_EPOCH:
            raise _out_of_order(header, offset, 0, "a producer without state begins at 0 under transaction version 2")
        if sequence > verification.lowest_sequence:
            raise _out_of_order(header, offset, verification.lowest_sequence, "the earliest sequence seen")
    if header.producer_epoch != entry.epoch:
        if sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
            raise _out_of_order(header, offset, 0, f"a new epoch (was {entry.epoch}) begins at 0")
    elif not _in_sequence(entry.last_sequence, sequence):
        raise _out_of_order(header, offset, _next_sequence(entry.last_sequence), "the next one")


def check_transactional(entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
    """Raise on plain data inside a transaction."""
    if entry.in_transaction and not header.is_transactional:
        raise InvalidTxnState(
            f"producer {header.producer_id} sent a batch without the transactional flag at offset {offset} "
            f"while its transaction is open since offset {entry.txn_first_offset}"
        )


def after_data(entry: ProducerEntry, header: BatchHeader, base_offset: int, now_ms: int) -> ProducerEntry:
    """The entry once a data batch stands at `base_offset`."""
    last_offset = base_offset + header.last_offset_delta
    memory = BatchMemory(header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp)
    known = entry.batches if header.producer_epoch == entry.epoch else ()
    starts = header.is_transactional and not entry.in_transaction
    return ProducerEntry(
        header.producer_id,
        header.producer_epoch,
        entry.coordinator_epoch,
        header.max_timestamp,
        now_ms,
        base_offset if starts else entry.txn_first_offset,
        (*known[-(BATCHES_REMEMBERED - 1) :], memory),
    )


def check_marker(entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
    """Raise unless this coordinator may end this producer's transaction now."""
    if producer_epoch < entry.epoch or (
        transaction_version >= 2 and producer_epoch == entry.epoch and entry.in_transaction
    ):
        raise InvalidProducerEpoch(
            f"a marker for producer {entry.producer_id} with epoch {producer_epoch}; the partition has seen epoch "
            f"{entry.epoch} (transaction version {transaction_version})"
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"a marker for producer {entry.producer_id} from coordinator epoch {coordinator_epoch}; "
            f"epoch {entry.coordinator_epoch} has replaced it"
        )


def after_marker(
    entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int, now_ms: int
) -> ProducerEntry:
    """The entry once its transaction has ended."""
    return entry._replace(
        epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp_ms=timestamp_ms,
        last_append_ms=now_ms,
        txn_first_offset=NO_OFFSET,
        batches=entry.batches if producer_epoch == entry.epoch else (),
    )


def _in_sequence(last: int, following: int) -> bool:
    return following == _next_sequence(last)


def _next_sequence(last: int) -> int:
    return 0 if last == MAX_SEQUENCE else last + 1


def _out_of_order(header: BatchHeader, offset: int, expected: int, why: str) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence} "
        f"at offset {offset}; expected {expected}: {why}"
    )
