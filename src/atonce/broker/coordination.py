"""Runs the coordinators inside the broker: decide, journal, apply, flush, and only then effects and answer.

Everything happens on one event loop, so a decision and its `apply` are never interleaved with another one. What the
rest of the broker gives: two journals (the only partition of `__transaction_state` and of `__consumer_offsets`) and a
`MarkerWriter` for the partitions of ordinary topics. What it gets: `transaction` and `group` to run decisions,
`add_partitions` and `verify_partitions` for Produce, `topics_deleted`, and timers that look after themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar, cast

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    Answer,
    Decision,
    Deferred,
    Effect,
    Journal,
    ProducerIdAndEpoch,
    StorageFailed,
    TopicPartition,
    WriteMarkers,
)
from atonce.coordinator.groups import records as group_records
from atonce.coordinator.groups.groups import GroupCoordinator
from atonce.coordinator.replaying import Replay
from atonce.coordinator.transactions import records as transaction_records
from atonce.coordinator.transactions.end import EndTxnAnswer
from atonce.coordinator.transactions.transactions import TransactionCoordinator

_log = logging.getLogger(__name__)

T = TypeVar("T")

# What our own markers carry, and the most that anybody's may: a higher one would shut ours out for good.
COORDINATOR_EPOCH = 0
_RETRY_S = 0.1
_RETRY_LIMIT_S = 5.0
# Kafka's add.partitions.to.txn.retry.backoff.max.ms: how long Produce waits for the producer's last transaction.
_CONCURRENT_WAIT_S = 0.1
# How long an EndTxn waits for the markers of the transaction before it.
_MARKERS_WAIT_S = 10.0


class MarkerWriter(Protocol):
    """The partitions of ordinary topics, as the end of a transaction needs them."""

    async def write_marker(
        self,
        partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        commit: bool,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> ErrorCode:
        """Append the marker and return once it is durable.

        NONE, or UNKNOWN_TOPIC_OR_PARTITION when the topic is gone (nothing is left to mark there). Any other code is
        taken as passing trouble and tried again. Writing the same marker twice is harmless.
        """


def replays() -> tuple[Replay, Replay]:
    """Of the transactions' journal, and of the groups'."""
    return (
        Replay(TRANSACTION_STATE, transaction_records.decode, transaction_records.name_of),
        Replay(CONSUMER_OFFSETS, group_records.decode, group_records.name_of),
    )


class Coordination:
    def __init__(
        self,
        *,
        transactions: TransactionCoordinator,
        groups: GroupCoordinator,
        transaction_journal: Journal,
        group_journal: Journal,
        markers: MarkerWriter,
        clock_ms: Callable[[], int],
    ) -> None:
        self.transactions = transactions
        self.groups = groups
        self._transaction_journal = transaction_journal
        self._group_journal = group_journal
        self._markers = markers
        self._clock_ms = clock_ms
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._completed = asyncio.Event()
        self._wake = asyncio.Event()
        self._armed_ms: int | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- life ---------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Read both journals back. Call once, before the first request. CorruptLogError if one hides its state."""
        now_ms = self._clock_ms()
        transactions, groups = replays()
        transactions.run(self._transaction_journal.replay(), lambda record, _: self.transactions.apply(record))
        transactions.settle()
        self.transactions.recovered(now_ms)
        groups.run(
            self._group_journal.replay(),
            self.groups.apply,
            lambda producer, commit: self.groups.apply_marker(producer.producer_id, commit),
        )
        groups.settle()
        self.groups.recovered(now_ms)

    def start(self) -> None:
        """Finish what was decided before the last stop, and start the timers. Needs a running loop."""
        for effect in self.transactions.unfinished():
            self._spawn(self._finish(effect))
        self._spawn(self._run_timers())

    async def stop(self) -> None:
        """Stop timers and marker writers. What they leave undone is finished by the next `start`."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for future in self._waiting.values():
            future.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- decisions ----------------------------------------------------------------------------------------------

    async def transaction(self, decide: Callable[[int], Decision[T]]) -> T:
        """Run a decision of the transaction coordinator; `decide` gets the time. Raises `StorageFailed`."""
        decision = self._journal_transaction(decide(self._clock_ms()))
        return await self._settle(self._transaction_journal, decision)

    async def group(self, decide: Callable[[int], Decision[T]]) -> T:
        """Run a decision of the group coordinator; deferred answers (JoinGroup, SyncGroup) are waited for."""
        decision = self._journal_group(decide(self._clock_ms()))
        return await self._settle(self._group_journal, decision)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        transaction_version: int,
    ) -> ErrorCode:
        """Add partitions to the producer's transaction, durably, before the first record is appended to them.

        What Produce v12+ and TxnOffsetCommit v5+ do (transaction protocol v2). CONCURRENT_TRANSACTIONS is answered
        only after waiting a little for the producer's last transaction to complete.
        """
        wanted = frozenset(partitions)
        deadline = asyncio.get_running_loop().time() + _CONCURRENT_WAIT_S
        while True:
            completed = self._completed
            error = await self.transaction(
                lambda now_ms: self.transactions.add_partitions(
                    now_ms, transactional_id, producer, wanted, transaction_version=transaction_version
                )
            )
            left = deadline - asyncio.get_running_loop().time()
            if error is not ErrorCode.concurrent_transactions or left <= 0:
                return _as_produce(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(completed.wait(), left)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, transaction_version: int
    ) -> EndTxnAnswer:
        """EndTxn. A producer that was told the outcome of its last transaction may end the next one at once: that is
        decided when the markers of the last are there, as if the request had come a moment later.
        """
        deadline = asyncio.get_running_loop().time() + _MARKERS_WAIT_S
        while True:
            completed = self._completed
            answer = await self.transaction(
                lambda now_ms: self.transactions.end_txn(
                    now_ms, transactional_id, producer, commit=commit, transaction_version=transaction_version
                )
            )
            left = deadline - asyncio.get_running_loop().time()
            if answer.error is not ErrorCode.concurrent_transactions or left <= 0:
                return answer
            metadata = self.transactions.describe(transactional_id)
            if metadata is None or transaction_version < 2 or metadata.producer_epoch != producer.epoch:
                return answer
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(completed.wait(), left)

    def verify_partition(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        *,
        knows_abortable: bool = True,
    ) -> ErrorCode:
        """Whether this transaction is open and has this partition. Ask right before the append, with no await between:
        then no delayed request can be appended behind its transaction's marker.

        Clients before Produce 11 and TxnOffsetCommit 4 do not know TRANSACTION_ABORTABLE: INVALID_TXN_STATE for them.
        """
        error = self.transactions.verify_partitions(transactional_id, producer, (partition,))[partition]
        if error is ErrorCode.transaction_abortable and not knows_abortable:
            return ErrorCode.invalid_txn_state
        return _as_produce(error)

    async def topics_deleted(self, topics: Iterable[str]) -> None:
        """Forget the groups' offsets of topics that were deleted."""
        names = frozenset(topics)
        await self.group(lambda now_ms: self.groups.topics_deleted(now_ms, names))

    async def write_markers(self, effect: WriteMarkers) -> dict[TopicPartition, ErrorCode]:
        """Write the markers of one ended transaction, `__consumer_offsets` included; one answer per partition."""
        producer = ProducerIdAndEpoch(effect.producer_id, effect.epoch)
        partitions = sorted(effect.partitions)
        codes = await asyncio.gather(*(self._write_marker(p, producer, effect) for p in partitions))
        return dict(zip(partitions, codes, strict=True))

    # -- the steps ----------------------------------------------------------------------------------------------

    def _journal_transaction(self, decision: Decision[T]) -> Decision[T]:
        if decision.records:
            encoded = [transaction_records.encode(record) for record in decision.records]
            self._transaction_journal.append(encoded, now_ms=self._clock_ms())
            for record in decision.records:
                self.transactions.apply(record)
        self._rearm()
        return decision

    def _journal_group(self, decision: Decision[T]) -> Decision[T]:
        if decision.records:
            encoded = [group_records.encode(record) for record in decision.records]
            self._group_journal.append(encoded, now_ms=self._clock_ms(), producer=decision.producer)
            for record in decision.records:
                self.groups.apply(record, decision.producer)
        self._rearm()
        return decision

    async def _settle(self, journal: Journal, decision: Decision[T]) -> T:
        future: asyncio.Future[object] | None = None
        if isinstance(decision.answer, Deferred):
            future = asyncio.get_running_loop().create_future()
            self._waiting[decision.answer.token] = future
        try:
            if decision.effects:
                # The client may hang up while we wait; what was decided happens all the same.
                await asyncio.shield(self._spawn(self._flush_then_start(journal, decision.effects)))
            else:
                await journal.flush()
            if future is not None:
                return cast(T, await future)
            return cast(T, decision.answer)
        finally:
            if isinstance(decision.answer, Deferred):
                self._waiting.pop(decision.answer.token, None)

    async def _flush_then_start(self, journal: Journal, effects: Iterable[Effect]) -> None:
        await journal.flush()
        for effect in effects:
            if isinstance(effect, WriteMarkers):
                self._spawn(self._finish(effect))
            elif (future := self._waiting.get(effect.token)) is not None and not future.done():
                future.set_result(effect.answer)

    async def _finish(self, effect: WriteMarkers) -> None:
        """Markers in every partition, then the record that says so; retried until done, as nothing else can undo it."""
        pause_s = _RETRY_S
        left = effect
        while True:
            codes = await self.write_markers(left)
            failed = {p for p, code in codes.items() if code not in _MARKED}
            if not failed:
                try:
                    await self.transaction(
                        lambda now_ms: self.transactions.complete(now_ms, effect.transactional_id, effect.producer_id)
                    )
                except StorageFailed as error:
                    _log.warning("transaction %s waits to be completed: %s", effect.transactional_id, error)
                else:
                    self._completed.set()
                    self._completed = asyncio.Event()
                    return
            else:
                _log.warning("markers of %s wait for %s", effect.transactional_id, sorted(failed))
            left = _only(effect, failed)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_LIMIT_S)

    async def _write_marker(
        self, partition: TopicPartition, producer: ProducerIdAndEpoch, effect: WriteMarkers
    ) -> ErrorCode:
        if partition.topic != CONSUMER_OFFSETS:
            return await self._markers.write_marker(
                partition,
                producer,
                effect.commit,
                coordinator_epoch=effect.coordinator_epoch,
                transaction_version=effect.transaction_version,
            )
        try:
            self._group_journal.append_marker(
                producer, effect.commit, coordinator_epoch=effect.coordinator_epoch, now_ms=self._clock_ms()
            )
            self.groups.apply_marker(producer.producer_id, effect.commit)
            await self._group_journal.flush()
        except StorageFailed:
            return ErrorCode.kafka_storage_error
        return ErrorCode.none

    # -- time ---------------------------------------------------------------------------------------------------

    async def _run_timers(self) -> None:
        while True:
            self._wake.clear()
            pause_s = 0.0
            try:
                await self._expire()
            except StorageFailed as error:
                _log.warning("a timer waits for the journal: %s", error)
                pause_s = _RETRY_S
            self._armed_ms = self._next_deadline_ms()
            timeout_s = None if self._armed_ms is None else max(pause_s, (self._armed_ms - self._clock_ms()) / 1000)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), timeout_s)

    async def _expire(self) -> None:
        while (ended := self.transactions.expire(self._clock_ms())) is not None:
            decided = self._journal_transaction(ended)
            self._spawn(self._flush_then_start(self._transaction_journal, decided.effects))
        while (expired := self.groups.expire(self._clock_ms())) is not None:
            decided = self._journal_group(expired)
            self._spawn(self._flush_then_start(self._group_journal, decided.effects))

    def _next_deadline_ms(self) -> int | None:
        deadlines = [self.transactions.next_deadline_ms(), self.groups.next_deadline_ms()]
        return min((d for d in deadlines if d is not None), default=None)

    def _rearm(self) -> None:
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, StorageFailed):
            _log.error("a coordinator task failed", exc_info=error)


_MARKED = frozenset({ErrorCode.none, ErrorCode.unknown_topic_or_partition})


def _as_produce(error: ErrorCode) -> ErrorCode:
    """Produce and TxnOffsetCommit know only the older of the two codes for a fenced producer."""
    return ErrorCode.invalid_producer_epoch if error is ErrorCode.producer_fenced else error


def _only(effect: WriteMarkers, partitions: Iterable[TopicPartition]) -> WriteMarkers:
    return dataclasses.replace(effect, partitions=frozenset(partitions))


__all__ = ["COORDINATOR_EPOCH", "Answer", "Coordination", "MarkerWriter", "StorageFailed"]
