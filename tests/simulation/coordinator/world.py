"""Producers, zombies, late requests and crashes around both coordinators: one process, one seed, any interleaving.

Every task is a generator that yields where the broker awaits; a scheduler picks the next one at random. Partitions are
modelled as Kafka's: an epoch per producer, a transaction opened by a guarded append, ended by a marker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import (
    CONSUMER_OFFSETS,
    OFFSETS_PARTITION,
    Decision,
    ProducerIdAndEpoch,
    TopicPartition,
    WriteMarkers,
)
from atonce.coordinator.groups import records as group_records
from atonce.coordinator.groups.groups import GroupConfig, GroupCoordinator, OffsetToCommit
from atonce.coordinator.transactions import records as transaction_records
from atonce.coordinator.transactions.transactions import TransactionConfig, TransactionCoordinator
from tests.simulation.coordinator.desk import FixedTopics, MemoryJournal

Task = Generator[None, None, Any]

OK = ErrorCode.none
INPUT = TopicPartition("in", 0)
_STUCK_AFTER = 50_000
FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping})


@dataclass
class Entry:
    producer: ProducerIdAndEpoch
    value: str | None  # None: a marker
    commit: bool | None = None


@dataclass
class PartitionModel:
    """One partition of an ordinary topic, with what its producer state checks."""

    entries: list[Entry] = field(default_factory=list)
    durable: int = 0
    guards: dict[int, object] = field(default_factory=dict)

    def epoch(self, producer_id: int) -> int:
        return max((e.producer.epoch for e in self.entries if e.producer.producer_id == producer_id), default=-1)

    def is_open(self, producer_id: int) -> bool:
        last = next((e for e in reversed(self.entries) if e.producer.producer_id == producer_id), None)
        return last is not None and last.value is not None

    def start_verification(self, producer: ProducerIdAndEpoch) -> object | None:
        if self.is_open(producer.producer_id) and self.epoch(producer.producer_id) == producer.epoch:
            return None
        return self.guards.setdefault(producer.producer_id, object())

    def append(self, producer: ProducerIdAndEpoch, value: str, guard: object | None) -> ErrorCode:
        if producer.epoch < self.epoch(producer.producer_id):
            return ErrorCode.invalid_producer_epoch
        if not self.is_open(producer.producer_id):
            if guard is None or self.guards.get(producer.producer_id) is not guard:
                return ErrorCode.invalid_txn_state
            del self.guards[producer.producer_id]
        self.entries.append(Entry(producer, value))
        return OK

    def append_marker(self, producer: ProducerIdAndEpoch, commit: bool) -> None:
        assert producer.epoch >= self.epoch(producer.producer_id), "a marker with an epoch that is over"
        self.guards.pop(producer.producer_id, None)
        self.entries.append(Entry(producer, None, commit))

    def crash(self, lost: int) -> None:
        del self.entries[max(self.durable, len(self.entries) - lost) :]
        self.durable = len(self.entries)
        self.guards.clear()

    def committed(self) -> list[str]:
        """What read_committed sees, in order of the commits."""
        seen: list[str] = []
        pending: dict[int, list[str]] = {}
        for entry in self.entries:
            if entry.value is not None:
                pending.setdefault(entry.producer.producer_id, []).append(entry.value)
            elif entry.commit:
                seen += pending.pop(entry.producer.producer_id, [])
            else:
                pending.pop(entry.producer.producer_id, None)
        return seen

    def undecided(self) -> list[str]:
        return [
            e.value
            for at, e in enumerate(self.entries)
            if e.value is not None
            and not any(
                later.value is None and later.producer.producer_id == e.producer.producer_id
                for later in self.entries[at:]
            )
        ]


@dataclass
class Transaction:
    """One transaction as its client knows it."""

    client: str
    serial: int
    values: dict[TopicPartition, str] = field(default_factory=dict)
    offset: int | None = None
    outcome: str = "unknown"  # committed, aborted


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.partitions = {TopicPartition("out", n): PartitionModel() for n in range(3)}
        self.transaction_journal = MemoryJournal(lambda _: None)
        self.group_journal = MemoryJournal(lambda _: None)
        self.topics = FixedTopics({"in": 1, "out": 3})
        self.history: list[Transaction] = []
        self.handed_out: dict[int, str] = {}
        self.tasks: list[Task] = []
        self.crashes = 0
        self.restart()

    # -- life ---------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """What was not flushed may be lost, in any amount; everything else is there."""
        self.tasks = []
        for store in (self.transaction_journal, self.group_journal, *self.partitions.values()):
            store.crash(self.random.choice([0, 1, 2, 1000]))
        self.transactions, self.groups = self.recovered()
        for effect in self.transactions.unfinished():
            self.spawn(self.finish(effect))

    def recovered(self) -> tuple[TransactionCoordinator, GroupCoordinator]:
        transactions = TransactionCoordinator(TransactionConfig())
        groups = GroupCoordinator(GroupConfig(), self.topics)
        for batch in self.transaction_journal.replay():
            for record in batch.records:
                transactions.apply(transaction_records.decode(record))
        transactions.recovered(self.now_ms)
        for batch in self.group_journal.replay():
            if batch.marker is not None and batch.producer is not None:
                groups.apply_marker(batch.producer.producer_id, batch.marker)
            for record in batch.records:
                groups.apply(group_records.decode(record), batch.producer)
        groups.recovered(self.now_ms)
        return transactions, groups

    def spawn(self, task: Task) -> None:
        self.tasks.append(task)

    def step(self) -> None:
        """Let one task, picked at random, run to its next await."""
        task = self.random.choice(self.tasks)
        try:
            next(task)
        except StopIteration:
            self.tasks.remove(task)

    def run_timers(self) -> None:
        while (ended := self.transactions.expire(self.now_ms)) is not None:
            task = self.decided(ended)
            next(task)  # appended and applied in this turn
            self.spawn(task)

    def drain(self) -> None:
        """Until nothing is left to do. A world that never gets there is stuck, and that is an anomaly too."""
        for _ in range(_STUCK_AFTER):
            if not self.tasks:
                return
            self.step()
        raise AssertionError(f"stuck: {len(self.tasks)} tasks still run after {_STUCK_AFTER} steps")

    # -- what the broker does -----------------------------------------------------------------------------------

    def transaction(self, decide: Callable[[], Decision[Any]]) -> Task:
        return (yield from self.decided(decide()))

    def decided(self, decision: Decision[Any]) -> Task:
        # Append and apply happen now, in one turn; only the flush is waited for.
        if decision.records:
            self.transaction_journal.append([transaction_records.encode(r) for r in decision.records])
            for record in decision.records:
                self.transactions.apply(record)
        return (yield from self._settled(decision))

    def _settled(self, decision: Decision[Any]) -> Task:
        yield
        self.transaction_journal.flush()
        for effect in decision.effects:
            assert isinstance(effect, WriteMarkers)
            self.spawn(self.finish(effect))
        return decision.answer

    def group(self, decide: Callable[[], Decision[Any]]) -> Task:
        decision = decide()
        if decision.records:
            encoded = [group_records.encode(r) for r in decision.records]
            self.group_journal.append(encoded, producer=decision.producer)
            for record in decision.records:
                self.groups.apply(record, decision.producer)
        yield
        self.group_journal.flush()
        return decision.answer

    def finish(self, effect: WriteMarkers) -> Task:
        producer = ProducerIdAndEpoch(effect.producer_id, effect.epoch)
        for partition in sorted(effect.partitions):
            yield
            if partition.topic == CONSUMER_OFFSETS:
                self.group_journal.append_marker(producer, effect.commit)
                self.groups.apply_marker(effect.producer_id, effect.commit)
            else:
                self.partitions[partition].append_marker(producer, effect.commit)
        yield
        self.group_journal.flush()
        for partition in effect.partitions - {OFFSETS_PARTITION}:
            self.partitions[partition].durable = len(self.partitions[partition].entries)
        yield
        name, producer_id = effect.transactional_id, effect.producer_id
        yield from self.transaction(lambda: self.transactions.complete(self.now_ms, name, producer_id))

    # -- what clients send --------------------------------------------------------------------------------------

    def init(self, client: str) -> Task:
        answer = yield from self.transaction(lambda: self.transactions.init_producer_id(self.now_ms, client, 5_000))
        if answer.error is OK:
            owner = self.handed_out.setdefault(answer.producer_id, client)
            assert owner == client, f"producer id {answer.producer_id} was handed to {owner} and to {client}"
        return answer

    def add(self, client: str, producer: ProducerIdAndEpoch, wanted: Iterable[TopicPartition], version: int) -> Task:
        partitions = frozenset(wanted)
        return (
            yield from self.transaction(
                lambda: self.transactions.add_partitions(
                    self.now_ms, client, producer, partitions, transaction_version=version
                )
            )
        )

    def produce(
        self, client: str, producer: ProducerIdAndEpoch, partition: TopicPartition, value: str, version: int
    ) -> Task:
        model = self.partitions[partition]
        guard = model.start_verification(producer)
        if guard is not None and version >= 2:
            error = yield from self.add(client, producer, [partition], version)
            if error is not OK:
                return error
        elif guard is not None:
            error = self.transactions.verify_partitions(client, producer, [partition])[partition]
            if error is not OK:
                return error
        error = model.append(producer, value, guard)
        if error is OK:
            yield
            model.durable = len(model.entries)
        return error

    def commit_offset(self, client: str, producer: ProducerIdAndEpoch, offset: int, version: int) -> Task:
        if version >= 2:
            error = yield from self.add(client, producer, [OFFSETS_PARTITION], version)
            if error is not OK:
                return error

        def decide() -> Decision[Any]:
            verified = self.transactions.verify_partitions(client, producer, [OFFSETS_PARTITION])[OFFSETS_PARTITION]
            if verified is not OK:
                return Decision({INPUT: verified})
            wanted = [OffsetToCommit(INPUT, offset)]
            return self.groups.commit_offsets_in_transaction(self.now_ms, client, "", None, -1, wanted, producer)

        answers = yield from self.group(decide)
        return answers[INPUT]

    def end(self, client: str, producer: ProducerIdAndEpoch, commit: bool, version: int) -> Task:
        return (
            yield from self.transaction(
                lambda: self.transactions.end_txn(
                    self.now_ms, client, producer, commit=commit, transaction_version=version
                )
            )
        )
