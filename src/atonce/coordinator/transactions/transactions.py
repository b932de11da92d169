"""The transaction coordinator: producer ids and epochs, open transactions, and how they end.

The answers are those of Kafka's TransactionCoordinator. In one respect it is simpler: a decision is applied as soon as
it is appended, so there is no pending state beside the state itself. What Kafka calls a pending transition is here
PrepareCommit or PrepareAbort, which last until the markers are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Decision,
    ProducerIdAndEpoch,
    TopicPartition,
    WriteMarkers,
)
from atonce.coordinator.groups.patterns import Pattern
from atonce.coordinator.groups.states import TransactionState, check_transaction_transition
from atonce.coordinator.timers import Timers
from atonce.coordinator.transactions.end import LAST_CLIENT_EPOCH, EndTxnAnswer, decide_end, fence, markers_of
from atonce.coordinator.transactions.producer_ids import ProducerIds
from atonce.coordinator.transactions.records import ProducerIdsRecord, TransactionMetadata, TransactionRecord
from atonce.errors import InvariantError

_PREPARING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's broker settings, by their names with the dots replaced."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_version: int = 2


@dataclass(frozen=True, slots=True)
class InitProducerIdAnswer:
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class TransactionCoordinator:
    def __init__(self, config: TransactionConfig) -> None:
        self._config = config
        self._producer_ids = ProducerIds()
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timers: Timers[str] = Timers()
        self._live = False

    # -- decide -------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, now_ms: int, transactional_id: str | None, timeout_ms: int, expected: ProducerIdAndEpoch | None = None
    ) -> Decision[InitProducerIdAnswer]:
        """`expected` is what a producer that goes on after an error believes to have (KIP-360)."""
        if transactional_id is None:
            producer_id, records = self._producer_ids.allocate()
            return Decision(InitProducerIdAnswer(ErrorCode.none, producer_id, 0), records)
        if not transactional_id:
            return _init_error(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            return _init_error(ErrorCode.invalid_transaction_timeout)
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            producer_id, records = self._producer_ids.allocate()
            metadata = TransactionMetadata(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=NO_PRODUCER_EPOCH,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY,
                last_update_ms=now_ms,
            )
            return self._next_epoch(now_ms, metadata, timeout_ms, expected, records)
        if metadata.state in _PREPARING:
            return _init_error(ErrorCode.concurrent_transactions)
        if expected is not None and not _may_go_on(metadata, expected):
            return _init_error(ErrorCode.producer_fenced)
        if metadata.state is TransactionState.ONGOING:
            # Whoever holds this id has to be stopped first: abort with a higher epoch, let the client ask again.
            fenced = self._fence(now_ms, metadata)
            answer = InitProducerIdAnswer(ErrorCode.concurrent_transactions)
            return Decision(answer, fenced.records, fenced.effects)
        return self._next_epoch(now_ms, metadata, timeout_ms, expected, ())

    def _next_epoch(
        self,
        now_ms: int,
        metadata: TransactionMetadata,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        allocated: tuple[ProducerIdsRecord, ...],
    ) -> Decision[InitProducerIdAnswer]:
        epoch, last_epoch = metadata.producer_epoch, metadata.last_producer_epoch
        producer_id = metadata.producer_id
        if epoch >= LAST_CLIENT_EPOCH and (expected is None or expected.epoch == epoch):
            producer_id, allocated = self._producer_ids.allocate()
            last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
            epoch = 0
        elif expected is None:
            epoch, last_epoch = epoch + 1, NO_PRODUCER_EPOCH
        elif epoch in (NO_PRODUCER_EPOCH, expected.epoch):
            epoch, last_epoch = epoch + 1, epoch
        elif expected.epoch != last_epoch:
            return _init_error(ErrorCode.producer_fenced)
        # Else the retry of a request that was answered: the same answer again, nothing bumped.
        initialised = replace(
            metadata,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            previous_producer_id=metadata.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            last_update_ms=now_ms,
        )
        answer = InitProducerIdAnswer(ErrorCode.none, producer_id, epoch)
        return Decision(answer, (*allocated, TransactionRecord(metadata.transactional_id, initialised)))

    def add_partitions(
        self,
        now_ms: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        *,
        transaction_version: int,
    ) -> Decision[ErrorCode]:
        if not transactional_id:
            return Decision(ErrorCode.invalid_request)
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            return Decision(ErrorCode.invalid_producer_id_mapping)
        # First of all checks: while a transaction with the last epoch ends, the client already holds the next id.
        if metadata.state in _PREPARING:
            return Decision(ErrorCode.concurrent_transactions)
        error = _identity_error(metadata, producer)
        if error is not ErrorCode.none:
            return Decision(error)
        ongoing = metadata.state is TransactionState.ONGOING
        if ongoing and partitions <= metadata.partitions:
            return Decision(ErrorCode.none)
        added = replace(
            metadata,
            state=TransactionState.ONGOING,
            previous_producer_id=metadata.producer_id,
            partitions=metadata.partitions | partitions,
            start_ms=metadata.start_ms if ongoing else now_ms,
            last_update_ms=now_ms,
            client_version=transaction_version,
        )
        return Decision(ErrorCode.none, (TransactionRecord(transactional_id, added),))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is in the producer's open transaction: nothing is decided, only looked up."""
        metadata = self._transactions.get(transactional_id)
        if not transactional_id:
            error = ErrorCode.invalid_request
        elif metadata is None:
            error = ErrorCode.invalid_producer_id_mapping
        else:
            error = _identity_error(metadata, producer)
            if error is ErrorCode.none and metadata.state in _PREPARING:
                error = ErrorCode.concurrent_transactions
        known = metadata.partitions if metadata is not None and error is ErrorCode.none else frozenset()
        missing = error if error is not ErrorCode.none else ErrorCode.transaction_abortable
        return {p: ErrorCode.none if p in known else missing for p in partitions}

    def end_txn(
        self,
        now_ms: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        transaction_version: int,
    ) -> Decision[EndTxnAnswer]:
        if not transactional_id:
            return Decision(EndTxnAnswer(ErrorCode.invalid_request))
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            return Decision(EndTxnAnswer(ErrorCode.invalid_producer_id_mapping))
        return decide_end(
            now_ms,
            metadata,
            producer,
            commit=commit,
            transaction_version=transaction_version,
            allocate=self._producer_ids.allocate,
        )

    def complete(self, now_ms: int, transactional_id: str, producer_id: int) -> Decision[None]:
        """Every marker of the transaction is durable: say so in the journal."""
        metadata = self._transactions.get(transactional_id)
        if metadata is None or metadata.state not in _PREPARING or metadata.producer_id != producer_id:
            return Decision(None)
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        rotated = metadata.next_producer_id != NO_PRODUCER_ID
        completed = replace(
            metadata,
            state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            producer_id=metadata.next_producer_id if rotated else metadata.producer_id,
            producer_epoch=0 if rotated else metadata.producer_epoch,
            previous_producer_id=metadata.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )
        return Decision(None, (TransactionRecord(transactional_id, completed),))

    def expire(self, now_ms: int) -> Decision[None] | None:
        """The next thing that time has decided: a transaction aborted, an unused transactional id forgotten."""
        transactional_id = self._timers.due(now_ms)
        if transactional_id is None:
            return None
        metadata = self._transactions[transactional_id]
        if metadata.state is TransactionState.ONGOING:
            return self._fence(now_ms, metadata)
        return Decision(None, (TransactionRecord(transactional_id, None),))

    def _fence(self, now_ms: int, metadata: TransactionMetadata) -> Decision[None]:
        return fence(now_ms, metadata, self._config.transaction_version, self._producer_ids.allocate)

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    # -- look up ------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        return self._transactions.get(transactional_id)

    def list_transactions(
        self,
        now_ms: int,
        *,
        producer_ids: frozenset[int] = frozenset(),
        states: frozenset[TransactionState] = frozenset(),
        longer_than_ms: int = -1,
        pattern: Pattern | None = None,
    ) -> list[TransactionMetadata]:
        """Empty sets, a negative duration and no pattern filter nothing."""
        tests: list[Callable[[TransactionMetadata], bool]] = []
        if producer_ids:
            tests.append(lambda m: m.producer_id in producer_ids)
        if states:
            tests.append(lambda m: m.state in states)
        if longer_than_ms >= 0:
            tests.append(lambda m: now_ms - m.start_ms > longer_than_ms)
        if pattern is not None:
            tests.append(lambda m: pattern.matches(m.transactional_id))
        return [m for m in self._transactions.values() if all(test(m) for test in tests)]

    def unfinished(self) -> list[WriteMarkers]:
        """Transactions that were decided and whose markers may be missing: what a restart has to finish."""
        return [markers_of(m) for m in self._transactions.values() if m.state in _PREPARING]

    # -- apply --------------------------------------------------------------------------------------------------

    def apply(self, record: object) -> None:
        if isinstance(record, ProducerIdsRecord):
            self._producer_ids.apply(record)
        elif isinstance(record, TransactionRecord):
            self._apply_transaction(record)
        elif record is not None:
            raise InvariantError(f"{record!r} is no record of the transaction coordinator")

    def _apply_transaction(self, record: TransactionRecord) -> None:
        transactional_id, metadata = record.transactional_id, record.metadata
        if self._live:
            old = self._transactions.get(transactional_id)
            check_transaction_transition(
                transactional_id,
                TransactionState.EMPTY if old is None else old.state,
                TransactionState.DEAD if metadata is None else metadata.state,
            )
        if metadata is None:
            self._transactions.pop(transactional_id, None)
            self._timers.cancel(transactional_id)
            return
        self._transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            self._timers.set(transactional_id, metadata.start_ms + metadata.timeout_ms + 1)
        elif metadata.state in _IDLE:
            expiration_ms = self._config.transactional_id_expiration_ms
            self._timers.set(transactional_id, metadata.last_update_ms + expiration_ms)
        else:
            self._timers.cancel(transactional_id)

    def recovered(self, now_ms: int) -> None:
        """The journal was read to its end. From here on every transition is checked (compaction drops some of them)."""
        self._producer_ids.recovered()
        self._live = True


def _init_error(error: ErrorCode) -> Decision[InitProducerIdAnswer]:
    return Decision(InitProducerIdAnswer(error))


def _identity_error(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    if metadata.producer_id != producer.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if metadata.producer_epoch != producer.epoch:
        return ErrorCode.producer_fenced
    return ErrorCode.none


def _may_go_on(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """The epoch is looked at later; a wrong producer id is fenced, unless the epochs of the right one ran out."""
    if expected.producer_id == metadata.producer_id:
        return True
    return expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
