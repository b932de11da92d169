"""A whole node in one process on a forgetful storage: the broker's partitions, journals and coordinators, no sockets.

Flushes run inline, so that every storage operation happens at a definite moment. The clients below speak transaction
protocol v2 as the Produce, TxnOffsetCommit and EndTxn handlers do.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID, uuid5

from kio.schema.errors import ErrorCode

from atonce.broker.coordination import Coordination
from atonce.broker.journal import PartitionJournal
from atonce.broker.metrics import Metrics
from atonce.broker.partition import Partition
from atonce.coordinator.decision import (
    CONSUMER_OFFSETS,
    OFFSETS_PARTITION,
    TRANSACTION_STATE,
    ProducerIdAndEpoch,
    TopicPartition,
)
from atonce.coordinator.groups.groups import GroupConfig, GroupCoordinator, OffsetToCommit
from atonce.coordinator.transactions.transactions import TransactionConfig, TransactionCoordinator
from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.records.record import build_batch, iter_records
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock, committed_records, read_all

SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=200, checkpoint_bytes=800, retention_ms=-1)
JOURNAL = dataclasses.replace(SMALL, segment_bytes=400, cleanup_policy=frozenset({"compact"}), delete_retention_ms=0)
JOURNALS = (TopicPartition(TRANSACTION_STATE, 0), TopicPartition(CONSUMER_OFFSETS, 0))
OUTPUTS = (TopicPartition("out", 0), TopicPartition("out", 1))
INPUT = TopicPartition("in", 0)
GROUP = "pipeline"
_NAMES = UUID(int=11)


class Inline(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Topics:
    counts: ClassVar[dict[str, int]] = {"in": 1, "out": 2}

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def topic_id(self, topic: str) -> UUID | None:
        return uuid5(_NAMES, topic) if topic in self.counts else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name in self.counts if uuid5(_NAMES, name) == topic_id), None)

    def names(self) -> list[str]:
        return list(self.counts)


@dataclass
class Transaction:
    """As its client knows it: what it wrote, and what EndTxn answered. `asked` without `answered` is in doubt."""

    values: dict[TopicPartition, bytes] = field(default_factory=dict)
    offset: int = -1
    asked: str = ""
    answered: bool = False


@dataclass
class Ledger:
    """Everything that clients were told."""

    transactions: list[Transaction] = field(default_factory=list)
    plain: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)

    def copy(self) -> Ledger:
        copies = [Transaction(dict(t.values), t.offset, t.asked, t.answered) for t in self.transactions]
        return Ledger(copies, dict(self.plain))


class Node:
    """Open or reopen everything on a storage; must run inside an event loop."""

    def __init__(self, storage: ForgetfulStorage) -> None:
        self.clock = TestClock()
        executor, metrics = Inline(), Metrics()
        self.partitions: dict[TopicPartition, Partition] = {}
        for key in (*OUTPUTS, *JOURNALS):
            config = JOURNAL if key in JOURNALS else SMALL
            log = PartitionLog.open(storage, f"{key.topic}-{key.partition}", config, self.clock)
            self.partitions[key] = Partition(*key, log, executor, metrics)
        self.coordination = Coordination(
            transactions=TransactionCoordinator(TransactionConfig()),
            groups=GroupCoordinator(GroupConfig(), Topics()),
            transaction_journal=PartitionJournal(self.partitions[JOURNALS[0]]),
            group_journal=PartitionJournal(self.partitions[JOURNALS[1]]),
            markers=self,
            clock_ms=self.clock,
        )
        self.coordination.recover()
        self.coordination.start()

    async def write_marker(
        self,
        partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        commit: bool,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> ErrorCode:
        found = self.partitions[partition]
        result = found.append_marker(
            producer.producer_id,
            producer.epoch,
            commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        await found.durable(result.last_offset)
        return ErrorCode.none

    async def init_producer(self, transactional_id: str) -> ProducerIdAndEpoch:
        """As a client: ask until the last transaction of this id is out of the way."""
        for _ in range(1_000):
            answer = await self.coordination.transaction(
                lambda now: self.coordination.transactions.init_producer_id(now, transactional_id, 60_000)
            )
            if answer.error is ErrorCode.none:
                return ProducerIdAndEpoch(answer.producer_id, answer.epoch)
            assert answer.error is ErrorCode.concurrent_transactions, answer
            await asyncio.sleep(0)
        raise AssertionError(f"{transactional_id} is stuck: its transaction never ends")

    async def produce(
        self, key: TopicPartition, value: bytes, transactional_id: str, producer: ProducerIdAndEpoch, sequence: int
    ) -> None:
        partition = self.partitions[key]
        guard = partition.log.start_verification(*producer, sequence, supports_epoch_bump=True)
        if guard is not None:
            await self._add(transactional_id, producer, key)
        batch = build_batch(
            [(b"k", value)],
            timestamp_ms=self.clock(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        await partition.durable(partition.append(batch, guard=guard).last_offset)

    async def _add(self, transactional_id: str, producer: ProducerIdAndEpoch, key: TopicPartition) -> None:
        """Into the transaction; while the last one still completes, ask again as clients do."""
        for _ in range(1_000):
            code = await self.coordination.add_partitions(transactional_id, producer, [key], transaction_version=2)
            if code is not ErrorCode.concurrent_transactions:
                assert code is ErrorCode.none, code
                return
        raise AssertionError(f"{transactional_id} is stuck: its last transaction never completes")

    async def produce_plain(self, key: TopicPartition, value: bytes) -> int:
        partition = self.partitions[key]
        result = partition.append(build_batch([(b"k", value)], timestamp_ms=self.clock()))
        await partition.durable(result.last_offset)
        return result.base_offset

    async def commit_offset(self, transactional_id: str, producer: ProducerIdAndEpoch, offset: int) -> None:
        await self._add(transactional_id, producer, OFFSETS_PARTITION)
        wanted = [OffsetToCommit(INPUT, offset)]
        await self.coordination.group(
            lambda now: self.coordination.groups.commit_offsets_in_transaction(
                now, GROUP, "", None, -1, wanted, producer
            )
        )

    async def end(self, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool) -> ProducerIdAndEpoch:
        answer = await self.coordination.transaction(
            lambda now: self.coordination.transactions.end_txn(
                now, transactional_id, producer, commit=commit, transaction_version=2
            )
        )
        assert answer.error is ErrorCode.none, answer
        return ProducerIdAndEpoch(answer.producer_id, answer.epoch)

    def compact_journals(self) -> int:
        """What the cleaner does now and then; returns how many journals had something to clean."""
        self.clock.now_ms += 1
        return sum(self.partitions[key].log.compact(force=True) for key in JOURNALS)

    def committed(self, key: TopicPartition) -> list[bytes]:
        return [record.value for record in committed_records(self.partitions[key].log) if record.value is not None]

    def everything(self, key: TopicPartition) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for header, batch in read_all(self.partitions[key].log):
            if not header.is_control:
                for record in iter_records(batch):
                    assert record.value is not None and record.value not in found, f"{record.value!r} twice"
                    found[record.value] = record.offset
        return found

    def offset(self) -> int:
        decision = self.coordination.groups.fetch_offsets(GROUP, [INPUT], require_stable=True)
        fetched = decision.answer[1][INPUT]  # type: ignore[index]
        assert fetched.error is ErrorCode.none, f"the offset stays unstable: {fetched}"
        return fetched.committed.offset

    async def close(self) -> None:
        await self.coordination.stop()
        for partition in self.partitions.values():
            await partition.settle()
            partition.log.close()
