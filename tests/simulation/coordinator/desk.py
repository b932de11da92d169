"""Both coordinators in one process, with virtual time, journals in memory, and a crash wherever a test wants one.

The desk keeps the order that `atonce.broker.coordination` keeps: decide, append, apply, flush, effects, answer. Data
partitions are lists of (producer id, epoch, value) and markers; what a crash may take is what was not flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid5

from atonce.coordinator.decision import (
    CONSUMER_OFFSETS,
    Answer,
    Decision,
    Deferred,
    JournalBatch,
    JournalRecord,
    ProducerIdAndEpoch,
    StorageFailed,
    TopicPartition,
    WriteMarkers,
)
from atonce.coordinator.groups import records as group_records
from atonce.coordinator.groups.groups import GroupConfig, GroupCoordinator
from atonce.coordinator.transactions import records as transaction_records
from atonce.coordinator.transactions.transactions import TransactionConfig, TransactionCoordinator

T = TypeVar("T")

_NAMES = UUID(int=7)


class Crash(Exception):
    """The process died here."""


@dataclass
class MemoryJournal:
    """A journal that forgets what was not flushed."""

    step: Callable[[str], None]
    batches: list[JournalBatch] = field(default_factory=list)
    durable: int = 0
    full: bool = False

    def append(
        self, records: Sequence[JournalRecord], *, now_ms: int = 0, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        self.step("append")
        if self.full:
            raise StorageFailed("no space left")
        self.batches.append(JournalBatch(tuple(records), producer))

    def append_marker(self, producer: ProducerIdAndEpoch, commit: bool) -> None:
        self.step("append marker")
        if self.full:
            raise StorageFailed("no space left")
        self.batches.append(JournalBatch((), producer, commit))

    def flush(self) -> None:
        self.step("flush")
        self.durable = len(self.batches)

    def crash(self, lost: int) -> None:
        """Lose up to `lost` of the batches that were not flushed, the newest first."""
        del self.batches[max(self.durable, len(self.batches) - lost) :]
        self.durable = len(self.batches)

    def replay(self) -> Iterator[JournalBatch]:
        return iter(list(self.batches))


@dataclass(frozen=True)
class Written:
    """One entry of a data partition: a record, or a marker (`value` is None)."""

    producer: ProducerIdAndEpoch
    value: Any = None
    commit: bool | None = None


class FixedTopics:
    def __init__(self, topics: dict[str, int]) -> None:
        self.counts = topics

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def topic_id(self, topic: str) -> UUID | None:
        return uuid5(_NAMES, topic) if topic in self.counts else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name in self.counts if uuid5(_NAMES, name) == topic_id), None)

    def names(self) -> Sequence[str]:
        return list(self.counts)


class Desk:
    def __init__(
        self,
        transaction_config: TransactionConfig | None = None,
        group_config: GroupConfig | None = None,
        topics: dict[str, int] | None = None,
    ) -> None:
        self.now_ms = 1_000_000
        self.steps = 0
        self.crash_at: int | None = None
        self.transaction_journal = MemoryJournal(self._step)
        self.group_journal = MemoryJournal(self._step)
        self.data: dict[TopicPartition, list[Written]] = {}
        self.topics = FixedTopics({"in": 2, "out": 2} if topics is None else topics)
        self._transaction_config = transaction_config or TransactionConfig()
        self._group_config = group_config or GroupConfig()
        self.markers: list[WriteMarkers] = []
        self.answers: dict[int, Any] = {}
        self._ids = 0
        self.restart()

    # -- crash and restart --------------------------------------------------------------------------------------

    def _step(self, name: str) -> None:
        """Every storage operation comes by here; the process may die right before any of them."""
        self.steps += 1
        if self.crash_at is not None and self.steps == self.crash_at:
            raise Crash(name)

    def restart(self, lost: tuple[int, int] = (0, 0)) -> None:
        """The process died; up to so many unflushed batches of each journal are lost."""
        self.crash_at = None
        self.transaction_journal.crash(lost[0])
        self.group_journal.crash(lost[1])
        self.transactions = TransactionCoordinator(self._transaction_config)
        self.groups = GroupCoordinator(self._group_config, self.topics, self._new_id)
        for batch in self.transaction_journal.replay():
            for record in batch.records:
                self.transactions.apply(transaction_records.decode(record))
        self.transactions.recovered(self.now_ms)
        for batch in self.group_journal.replay():
            if batch.marker is not None and batch.producer is not None:
                self.groups.apply_marker(batch.producer.producer_id, batch.marker)
            for record in batch.records:
                self.groups.apply(group_records.decode(record), batch.producer)
        self.groups.recovered(self.now_ms)
        self.markers = list(self.transactions.unfinished())
        self.answers = {}

    def _new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    # -- decisions ----------------------------------------------------------------------------------------------

    def transaction(self, decision: Decision[T]) -> T:
        if decision.records:
            self.transaction_journal.append([transaction_records.encode(r) for r in decision.records])
            for record in decision.records:
                self.transactions.apply(record)
        return self._settle(self.transaction_journal, decision)

    def group(self, decision: Decision[T]) -> T:
        if decision.records:
            encoded = [group_records.encode(r) for r in decision.records]
            self.group_journal.append(encoded, producer=decision.producer)
            for record in decision.records:
                self.groups.apply(record, decision.producer)
        return self._settle(self.group_journal, decision)

    def _settle(self, journal: MemoryJournal, decision: Decision[T]) -> T:
        journal.flush()
        for effect in decision.effects:
            if isinstance(effect, WriteMarkers):
                self.markers.append(effect)
            elif isinstance(effect, Answer):
                self.answers[effect.token] = effect.answer
        if isinstance(decision.answer, Deferred):
            return self.answers.get(decision.answer.token, decision.answer)  # type: ignore[return-value]
        return decision.answer

    # -- markers, time ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write every marker that is due, then complete: what the broker does in the background."""
        while self.markers:
            self.finish_one(self.markers[0])
            self.markers.pop(0)

    def finish_one(self, effect: WriteMarkers) -> None:
        producer = ProducerIdAndEpoch(effect.producer_id, effect.epoch)
        for partition in sorted(effect.partitions):
            if partition.topic == CONSUMER_OFFSETS:
                self.group_journal.append_marker(producer, effect.commit)
                self.groups.apply_marker(effect.producer_id, effect.commit)
                self.group_journal.flush()
            else:
                self._step("marker")
                self.data.setdefault(partition, []).append(Written(producer, None, effect.commit))
        self.transaction(self.transactions.complete(self.now_ms, effect.transactional_id, effect.producer_id))

    def advance(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        until = self.now_ms + ms
        while True:
            deadlines = [self.transactions.next_deadline_ms(), self.groups.next_deadline_ms()]
            due = min((d for d in deadlines if d is not None and d <= until), default=None)
            if due is None:
                break
            self.now_ms = max(self.now_ms, due)
            while (ended := self.transactions.expire(self.now_ms)) is not None:
                self.transaction(ended)
            while (expired := self.groups.expire(self.now_ms)) is not None:
                self.group(expired)
        self.now_ms = until

    # -- what producers do --------------------------------------------------------------------------------------

    def init(
        self, transactional_id: str | None, timeout_ms: int = 60_000, expected: ProducerIdAndEpoch | None = None
    ) -> Any:
        return self.transaction(self.transactions.init_producer_id(self.now_ms, transactional_id, timeout_ms, expected))

    def add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *partitions: TopicPartition, version: int = 2
    ) -> Any:
        return self.transaction(
            self.transactions.add_partitions(
                self.now_ms, transactional_id, producer, frozenset(partitions), transaction_version=version
            )
        )

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool = True, version: int = 2) -> Any:
        return self.transaction(
            self.transactions.end_txn(
                self.now_ms, transactional_id, producer, commit=commit, transaction_version=version
            )
        )
