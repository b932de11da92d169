"""A Kafka cluster in memory: the real coordinators over a journal, the real logs over a forgetful disk, several nodes.

What is replicated in production is one state here that every node sees; a node answers only for what it leads. So a
fail-over is a new leader with a higher epoch, and a coordinator that moved is one that another node reads back from the
journal. Requests and answers are objects: the codec of the wire has tests of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace as Told
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import (
    CONSUMER_OFFSETS,
    OFFSETS_PARTITION,
    Decision,
    ProducerIdAndEpoch,
    TopicPartition,
    WriteMarkers,
)
from atonce.coordinator.groups.offset_requests import OffsetToCommit
from atonce.log.config import LogConfig
from atonce.log.errors import LogError
from atonce.log.partition_log import PartitionLog
from atonce.log.results import Isolation
from atonce.records.batch import read_header
from tests.simulation.coordinator.desk import Desk
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.pipeline.fibers import Turns
from tests.simulation.pipeline.virtual import EPOCH_S

OK = 0
NOT_LEADER, NOT_COORDINATOR, UNKNOWN_TOPIC = 6, 16, 3
UNKNOWN_TOPIC_ID = 100
NODES = (0, 1, 2)
CONFIG = LogConfig(retention_ms=-1)
MARKERS_TAKE_S = 0.02
EARLIEST_LOCAL = -4


@dataclass
class VirtualPartition:
    log: PartitionLog
    leader: int
    leader_epoch: int = 0


@dataclass
class VirtualTopic:
    name: str
    id: UUID
    partitions: list[VirtualPartition] = field(default_factory=list)


class DeskTopics:
    """The topics as the group coordinator sees them."""

    def __init__(self, topics: dict[str, VirtualTopic]) -> None:
        self._topics = topics

    def partition_count(self, topic: str) -> int | None:
        return len(self._topics[topic].partitions) if topic in self._topics else None

    def topic_id(self, topic: str) -> UUID | None:
        return self._topics[topic].id if topic in self._topics else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((each.name for each in self._topics.values() if each.id == topic_id), None)

    def names(self) -> list[str]:
        return list(self._topics)


class ClusterDesk(Desk):
    """The coordinators' desk, with markers that go into real logs, a moment after their transaction was decided."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        super().__init__()
        self.now_ms = cluster.clock_ms()
        self.topics = DeskTopics(cluster.topics)
        self.restart()

    def finish_one(self, effect: WriteMarkers) -> None:
        for partition in sorted(effect.partitions):
            found = self._cluster.find(partition)
            if partition.topic != CONSUMER_OFFSETS and found is not None:
                found.log.append_marker(
                    effect.producer_id,
                    effect.epoch,
                    effect.commit,
                    effect.coordinator_epoch,
                    leader_epoch=found.leader_epoch,
                    transaction_version=effect.transaction_version,
                )
                found.log.flush()
        if any(partition.topic == CONSUMER_OFFSETS for partition in effect.partitions):
            producer = ProducerIdAndEpoch(effect.producer_id, effect.epoch)
            self.group_journal.append_marker(producer, effect.commit)
            self.groups.apply_marker(effect.producer_id, effect.commit)
            self.group_journal.flush()
        self.transaction(self.transactions.complete(self.now_ms, effect.transactional_id, effect.producer_id))


class VirtualCluster:
    def __init__(self, turns: Turns, rng: random.Random) -> None:
        self._turns = turns
        self._rng = rng
        self.storage = ForgetfulStorage()
        self.topics: dict[str, VirtualTopic] = {}
        self.coordinator = 0
        self.remote_until = 0.0
        """Until then all records lie in remote storage."""
        self._logs = 0
        self.desk = ClusterDesk(self)
        self._answers: dict[str, Callable[[Any, int], Any]] = {
            "ApiVersionsRequest": self._api_versions,
            "MetadataRequest": self._metadata,
            "FindCoordinatorRequest": self._find_coordinator,
            "DescribeConfigsRequest": self._describe_configs,
            "CreateTopicsRequest": self._create_topics,
            "InitProducerIdRequest": self._init_producer_id,
            "TxnOffsetCommitRequest": self._txn_offset_commit,
            "EndTxnRequest": self._end_txn,
            "DescribeTransactionsRequest": self._describe_transactions,
            "OffsetFetchRequest": self._offset_fetch,
            "OffsetCommitRequest": self._offset_commit,
            "OffsetDeleteRequest": self._offset_delete,
            "ListOffsetsRequest": self._list_offsets,
            "OffsetForLeaderEpochRequest": self._epoch_ends,
            "FetchRequest": self._fetch,
            "ProduceRequest": self._produce,
        }

    # What the world does

    def clock_ms(self) -> int:
        return int((EPOCH_S + self._turns.now) * 1000)

    def create(self, name: str, partitions: int) -> VirtualTopic:
        topic = self.topics[name] = VirtualTopic(name, UUID(int=self._rng.getrandbits(128), version=4))
        for _ in range(partitions):
            self.add_partition(name)
        return topic

    def add_partition(self, name: str) -> None:
        topic = self.topics[name]
        topic.partitions.append(VirtualPartition(self.new_log(name), leader=len(topic.partitions) % len(NODES)))

    def new_log(self, name: str) -> PartitionLog:
        self._logs += 1
        return PartitionLog.open(self.storage, f"{name}-{self._logs}", CONFIG, self.clock_ms)

    def delete(self, name: str) -> None:
        """Groups lose the offsets that stood on it, as in Kafka."""
        self.topics.pop(name)
        self.desk.group(self.desk.groups.topics_deleted(self.clock_ms(), frozenset({name})))

    def find(self, place: tuple[str, int]) -> VirtualPartition | None:
        topic = self.topics.get(place[0])
        return topic.partitions[place[1]] if topic is not None and 0 <= place[1] < len(topic.partitions) else None

    def fail_over(self, node: int) -> None:
        """Another node leads what this one led, in a new epoch; what was acknowledged is there."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node:
                    partition.leader = (node + 1) % len(NODES)
                    partition.leader_epoch += 1
        if self.coordinator == node:
            self.coordinator = (node + 1) % len(NODES)
            self._tick()
            self.desk.restart()
            self._schedule_markers()

    def committed(self, name: str) -> list[list[Any]]:
        """Every visible record, partition by partition."""
        from tests.simulation.log.workload import committed_records

        return [list(committed_records(each.log)) for each in self.topics[name].partitions]

    # One request at one node

    def answer(self, request: Any, node: int) -> Any:
        self._tick()
        return self._answers[type(request).__name__](request, node)

    def _tick(self) -> None:
        """What timers have done by now: transactions that ran out of time are aborted."""
        desk, now_ms = self.desk, self.clock_ms()
        if desk.now_ms < now_ms:
            desk.advance(now_ms - desk.now_ms)
        if desk.markers:
            self._schedule_markers()

    def _schedule_markers(self) -> None:
        if self.desk.markers:
            self._turns.later(self._rng.random() * MARKERS_TAKE_S, self._finish_markers)

    def _finish_markers(self) -> None:
        self.desk.now_ms = max(self.desk.now_ms, self.clock_ms())
        self.desk.finish()

    def _decided(self, decision: Decision[Any]) -> Any:
        answer = self.desk.transaction(decision)
        self._schedule_markers()
        return answer

    def _api_versions(self, request: Any, node: int) -> Any:
        feature = Told(name="transaction.version", max_version_level=2)
        return Told(error_code=OK, finalized_features=[feature])

    def _metadata(self, request: Any, node: int) -> Any:
        names = [each.name for each in request.topics] if request.topics is not None else sorted(self.topics)
        brokers = [Told(node_id=each, host="virtual", port=9092) for each in NODES]
        found = [self._described(name) for name in names]
        return Told(error_code=OK, brokers=brokers, topics=found, cluster_id="virtual")

    def _described(self, name: str) -> Any:
        topic = self.topics.get(name)
        if topic is None:
            return Told(error_code=UNKNOWN_TOPIC, name=name, is_internal=False)
        partitions = [
            Told(partition_index=index, leader_id=each.leader, leader_epoch=each.leader_epoch)
            for index, each in enumerate(topic.partitions)
        ]
        return Told(error_code=OK, name=name, topic_id=topic.id, is_internal=False, partitions=partitions)

    def _find_coordinator(self, request: Any, node: int) -> Any:
        return Told(coordinators=[Told(error_code=OK, node_id=self.coordinator)])

    def _describe_configs(self, request: Any, node: int) -> Any:
        known = {
            "max.message.bytes": str(CONFIG.max_message_bytes),
            "transaction.max.timeout.ms": "900000",
            "message.timestamp.type": "CreateTime",
        }
        results = [
            Told(
                configs=[Told(name=key, value=value) for key, value in known.items() if key in each.configuration_keys]
            )
            for each in request.resources
        ]
        return Told(results=results)

    def _create_topics(self, request: Any, node: int) -> Any:
        done = []
        for each in request.topics:
            there = each.name in self.topics
            if not there:
                self.create(each.name, each.num_partitions)
            done.append(Told(name=each.name, error_code=36 if there else OK, error_message=None))
        return Told(topics=done)

    # Transactions

    def _init_producer_id(self, request: Any, node: int) -> Any:
        if request.transactional_id is not None and node != self.coordinator:
            return Told(error_code=NOT_COORDINATOR, producer_id=-1, producer_epoch=-1)
        name, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        answer = self._decided(self.desk.transactions.init_producer_id(self.clock_ms(), name, timeout_ms, None))
        return Told(error_code=int(answer.error), producer_id=answer.producer_id, producer_epoch=answer.epoch)

    def _add(self, name: str, producer: ProducerIdAndEpoch, places: Iterable[TopicPartition]) -> ErrorCode:
        wanted = frozenset(places)
        decided: ErrorCode = self._decided(
            self.desk.transactions.add_partitions(self.clock_ms(), name, producer, wanted, transaction_version=2)
        )
        return ErrorCode.invalid_producer_epoch if decided is ErrorCode.producer_fenced else decided

    def _txn_offset_commit(self, request: Any, node: int) -> Any:
        wanted = [_to_commit(topic.name, each) for topic in request.topics for each in topic.partitions]
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        error = ErrorCode(NOT_COORDINATOR) if node != self.coordinator else ErrorCode.none
        known = [each for each in wanted if self.find(each.partition) is not None]
        answers = {each.partition: ErrorCode.unknown_topic_or_partition for each in wanted}
        if error is ErrorCode.none and known:
            error = self._add(request.transactional_id, producer, [OFFSETS_PARTITION])
        if error is ErrorCode.none and known:
            desk, name = self.desk, request.transactional_id
            error = desk.transactions.verify_partitions(name, producer, [OFFSETS_PARTITION])[OFFSETS_PARTITION]
            error = ErrorCode.invalid_producer_epoch if error is ErrorCode.producer_fenced else error
        if error is ErrorCode.none and known:
            answers |= self.desk.group(
                self.desk.groups.commit_offsets_in_transaction(
                    self.clock_ms(), request.group_id, "", None, -1, known, producer
                )
            )
        elif known:
            answers |= {each.partition: error for each in known}
        return _by_partition(request, answers)

    def _end_txn(self, request: Any, node: int) -> Any:
        if node != self.coordinator:
            return Told(error_code=NOT_COORDINATOR, producer_id=-1, producer_epoch=-1)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        for _ in range(2):
            answer = self._decided(
                self.desk.transactions.end_txn(
                    self.clock_ms(),
                    request.transactional_id,
                    producer,
                    commit=request.committed,
                    transaction_version=2,
                )
            )
            if answer.error is not ErrorCode.concurrent_transactions or self._rng.random() < 0.5:
                break
            self._finish_markers()  # the broker waits for the markers of the transaction before
        return Told(error_code=int(answer.error), producer_id=answer.producer_id, producer_epoch=answer.epoch)

    def _describe_transactions(self, request: Any, node: int) -> Any:
        states = []
        for name in request.transactional_ids:
            found = self.desk.transactions.describe(name)
            code = NOT_COORDINATOR if node != self.coordinator else OK if found is not None else 105
            states.append(Told(error_code=code, transaction_state=found.state.label if found is not None else ""))
        return Told(transaction_states=states)

    # Groups

    def _offset_fetch(self, request: Any, node: int) -> Any:
        groups = []
        for group in request.groups:
            if node != self.coordinator:
                groups.append(Told(error_code=NOT_COORDINATOR, topics=[]))
                continue
            wanted = None
            if group.topics is not None:
                wanted = [TopicPartition(t.name, index) for t in group.topics for index in t.partition_indexes]
            found = self.desk.groups.fetch_offsets(group.group_id, wanted, require_stable=request.require_stable)
            error, offsets = self.desk.group(found)
            topics: dict[str, list[Any]] = {}
            for place, each in offsets.items():
                kept = each.committed
                topics.setdefault(place.topic, []).append(
                    Told(
                        partition_index=place.partition,
                        error_code=int(each.error),
                        committed_offset=kept.offset,
                        committed_leader_epoch=kept.leader_epoch,
                        metadata=kept.metadata,
                    )
                )
            told = [Told(name=name, partitions=parts) for name, parts in topics.items()]
            groups.append(Told(error_code=int(error), topics=told))
        return Told(groups=groups)

    def _offset_commit(self, request: Any, node: int) -> Any:
        wanted = [_to_commit(topic.name, each) for topic in request.topics for each in topic.partitions]
        if node != self.coordinator:
            return _by_partition(request, {each.partition: NOT_COORDINATOR for each in wanted})
        known = [each for each in wanted if self.find(each.partition) is not None]
        answers = {each.partition: ErrorCode.unknown_topic_or_partition for each in wanted}
        answers |= self.desk.group(
            self.desk.groups.commit_offsets(self.clock_ms(), request.group_id, "", None, -1, known)
        )
        return _by_partition(request, answers)

    def _offset_delete(self, request: Any, node: int) -> Any:
        places = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
        error, answers = self.desk.group(self.desk.groups.delete_offsets(self.clock_ms(), request.group_id, places))
        told = _by_partition(request, answers)
        told.error_code = int(error)
        return told

    # Logs

    def _led(self, place: tuple[str, int], node: int) -> tuple[VirtualPartition | None, int]:
        found = self.find(place)
        if found is None:
            return None, UNKNOWN_TOPIC
        return (found, OK) if found.leader == node else (None, NOT_LEADER)

    def _list_offsets(self, request: Any, node: int) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                found, code = self._led((topic.name, each.partition_index), node)
                offset, epoch = -1, -1
                if found is not None and 0 <= each.current_leader_epoch != found.leader_epoch:
                    code = 74 if each.current_leader_epoch < found.leader_epoch else 76
                elif found is not None:
                    log, epoch = found.log, found.leader_epoch
                    end = log.last_stable_offset if request.isolation_level == 1 else log.high_watermark
                    offset = end if each.timestamp == -1 else log.log_start_offset
                    if each.timestamp == EARLIEST_LOCAL and self._turns.now < self.remote_until:
                        offset = log.log_end_offset
                parts.append(
                    Told(partition_index=each.partition_index, error_code=code, offset=offset, leader_epoch=epoch)
                )
            topics.append(Told(name=topic.name, partitions=parts))
        return Told(topics=topics)

    def _epoch_ends(self, request: Any, node: int) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                found, code = self._led((topic.topic, each.partition), node)
                epoch, end = -1, -1
                if found is not None and each.leader_epoch == found.leader_epoch:
                    epoch, end = each.leader_epoch, found.log.high_watermark
                elif found is not None:
                    known = found.log.epoch_end_offset(each.leader_epoch)
                    epoch, end = known.leader_epoch, known.end_offset
                parts.append(Told(partition=each.partition, error_code=code, leader_epoch=epoch, end_offset=end))
            topics.append(Told(topic=topic.topic, partitions=parts))
        return Told(topics=topics)

    def _fetch(self, request: Any, node: int) -> Any:
        asked = request.topics[0]
        one = asked.partitions[0]
        entry = Told(
            partition_index=one.partition, error_code=OK, records=b"", aborted_transactions=[], diverging_epoch=None,
            preferred_read_replica=-1, last_stable_offset=-1, high_watermark=-1,
        )  # fmt: skip
        told = Told(error_code=OK, throttle_time_ms=0, responses=[Told(partitions=[entry])])
        name = asked.topic
        if asked.topic_id is not None:
            name = next((each.name for each in self.topics.values() if each.id == asked.topic_id), None)
            if name is None:
                entry.error_code = UNKNOWN_TOPIC_ID
                return told
        found, entry.error_code = self._led((name, one.partition), node)
        if found is None:
            return told
        if 0 <= one.current_leader_epoch != found.leader_epoch:
            entry.error_code = 74 if one.current_leader_epoch < found.leader_epoch else 76
            return told
        isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        try:
            if one.last_fetched_epoch >= 0 and self._diverged(found, one, entry):
                return told
            result = found.log.read(one.fetch_offset, one.partition_max_bytes, isolation=isolation)
        except LogError as error:
            entry.error_code = int(error.code)
            return told
        entry.records = result.read()
        entry.aborted_transactions = [Told(producer_id=p, first_offset=first) for p, first in result.aborted]
        entry.high_watermark, entry.last_stable_offset = result.high_watermark, result.last_stable_offset
        return told

    def _diverged(self, found: VirtualPartition, one: Any, entry: Any) -> bool:
        log, asked = found.log, one.last_fetched_epoch
        epoch, end = asked, log.log_end_offset
        if asked != found.leader_epoch:
            known = log.epoch_end_offset(asked)
            epoch, end = known.leader_epoch, known.end_offset
        if end < 0 or epoch < 0:
            entry.error_code = 1
            return True
        if one.fetch_offset < log.log_start_offset or not (epoch < asked or end < one.fetch_offset):
            return False
        entry.diverging_epoch = Told(epoch=epoch, end_offset=end)
        entry.high_watermark, entry.last_stable_offset = log.high_watermark, log.last_stable_offset
        return True

    def _produce(self, request: Any, node: int) -> Any:
        topic = request.topic_data[0]
        one = topic.partition_data[0]
        found, code = self._led((topic.name, one.index), node)
        base = -1
        if found is not None:
            code, base = self._append(request.transactional_id, TopicPartition(topic.name, one.index), found, one)
        entry = Told(index=one.index, error_code=code, base_offset=base, error_message=None)
        return Told(throttle_time_ms=0, responses=[Told(partition_responses=[entry])])

    def _append(self, name: str | None, place: TopicPartition, found: VirtualPartition, one: Any) -> tuple[int, int]:
        records, guard = one.records, None
        header = read_header(records)
        try:
            if header.is_transactional:
                producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
                guard = found.log.start_verification(*producer, header.base_sequence, supports_epoch_bump=True)
                if guard is not None and (added := self._add(name or "", producer, [place])) is not ErrorCode.none:
                    return int(added), -1
            result = found.log.append(records, leader_epoch=found.leader_epoch, guard=guard)
        except LogError as error:
            return int(error.code), -1
        found.log.flush()
        return OK, result.base_offset


def _to_commit(topic: str, each: Any) -> OffsetToCommit:
    return OffsetToCommit(
        TopicPartition(topic, each.partition_index),
        each.committed_offset,
        each.committed_leader_epoch,
        each.committed_metadata,
    )


def _by_partition(request: Any, answers: Any) -> Any:
    topics = [
        Told(
            name=topic.name,
            partitions=[
                Told(
                    partition_index=each.partition_index,
                    error_code=int(answers[TopicPartition(topic.name, each.partition_index)]),
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Told(error_code=OK, topics=topics)
