"""Produce: key 0, versions 3-13.

Each batch is appended in the order of the connection's requests, then waited for together with others until one fsync
covers them all. acks=0 is not answered, 1 and all mean the same here: one copy, on disk. A transactional batch that
would begin a transaction in its partition is first added to it by the coordinator (version 12 on, transaction protocol
v2) or verified with it (before), so that no late request leaves a transaction hanging.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from atonce.broker.access.topics import is_forbidden
from atonce.broker.acls import Operation, Resource
from atonce.broker.context import Context, Later
from atonce.broker.looking import Looked, look_at
from atonce.broker.messages import ErrorCode, MalformedRequest
from atonce.broker.partition import Partition
from atonce.broker.produce_wire import (
    FIRST_TOPIC_ID,
    PartitionAnswer,
    PartitionRecords,
    ProduceRequest,
    read_produce,
    write_produce,
)
from atonce.coordinator.decision import ProducerIdAndEpoch, StorageFailed, TopicPartition
from atonce.log.errors import LogError
from atonce.log.results import AppendResult, VerificationGuard
from atonce.records.batch import BatchHeader, InvalidBatch, read_header

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 0
MIN_VERSION = 3
MAX_VERSION = 13
# Versions 0 to 2 are refused; they are listed because older librdkafkas look at them to see which codecs there are.
ADVERTISED_MIN_VERSION = 0

_ADDS_PARTITIONS = 12
# Older clients do not know TRANSACTION_ABORTABLE; Kafka tells them INVALID_TXN_STATE.
_KNOWS_ABORTABLE = 11
# Clients of the first transaction protocol do not know these; Kafka tells them something that they retry.
_PASSING = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)

# An answer, by list and position, and the fsync that it waits for.
Wait = tuple[list[PartitionAnswer], int, asyncio.Future[None]]
Guards = dict[tuple[str, int], VerificationGuard | ErrorCode]


def parse(version: int, frame: bytes, position: int) -> ProduceRequest:
    return read_produce(version, frame, position)


async def handle(broker: BrokerState, context: Context, request: ProduceRequest) -> Any:
    if request.acks not in (-1, 0, 1):
        return _all_refused(context, request, ErrorCode.invalid_required_acks)
    forbidden = frozenset(
        topic.topic for topic in request.topics if is_forbidden(broker, context, Operation.WRITE, topic.topic)
    )
    found: list[tuple[str | UUID, list[tuple[PartitionRecords, Partition | None]]]] = [
        (
            topic.topic,
            [
                (one, None if topic.topic in forbidden else _find(broker, topic.topic, one.index))
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    looked = await look_at(broker, [one for _, partitions in found for one in partitions])
    transactional = _transactional(found)
    guards: Guards = {}
    if transactional:
        if request.transactional_id is None or not context.peer.may(
            Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id
        ):
            return _all_refused(context, request, ErrorCode.transactional_id_authorization_failed)
        guards = await _admit(broker, context, request.transactional_id, transactional)
    answers: list[tuple[str | UUID, list[PartitionAnswer]]] = []
    waits: list[Wait] = []
    for topic_key, partitions in found:
        done: list[PartitionAnswer] = []
        answers.append((topic_key, done))
        if topic_key in forbidden:
            done += [PartitionAnswer(one.index, ErrorCode.topic_authorization_failed) for one, _ in partitions]
            continue
        for one, partition in partitions:
            answer, last_offset = _append(broker, context, one, partition, guards, looked.get(id(one)))
            done.append(answer)
            if partition is not None and last_offset is not None and request.acks != 0:
                waits.append((done, len(done) - 1, partition.durable(last_offset)))
    if request.acks == 0:
        if any(one.error for _, done in answers for one in done):
            # Kafka closes the connection: it is the only way to tell a client that listens to no answer.
            raise MalformedRequest("a produce with acks=0 that failed")
        return None
    if not waits:
        return write_produce(context.version, answers)
    return Later(asyncio.ensure_future(_answer(context, answers, waits)))


def _find(broker: BrokerState, topic: str | UUID, index: int) -> Partition | None:
    known = broker.topics.by_id(topic) if isinstance(topic, UUID) else broker.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    return known.partitions[index]


def _transactional(found: Any) -> list[tuple[Partition, BatchHeader]]:
    """The transactional batches; what is no batch at all is left for the append to refuse."""
    batches = []
    for _, partitions in found:
        for one, partition in partitions:
            if partition is not None and one.records:
                try:
                    header = read_header(one.records)
                except InvalidBatch:
                    continue
                if header.is_transactional:
                    batches.append((partition, header))
    return batches


async def _admit(
    broker: BrokerState, context: Context, transactional_id: str, batches: list[tuple[Partition, BatchHeader]]
) -> Guards:
    """The right to begin a transaction, for each partition where these batches would."""
    adds = context.version >= _ADDS_PARTITIONS
    guards: Guards = {}
    to_add: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
    for partition, header in batches:
        key = TopicPartition(partition.topic, partition.index)
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        try:
            guard = partition.log.start_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, supports_epoch_bump=adds
            )
        except LogError as error:
            guards[key] = ErrorCode(error.code)
            continue
        if guard is None:
            continue
        guards[key] = guard
        if adds:
            to_add.setdefault(producer, []).append(key)
        elif broker.settings.flag("transaction.partition.verification.enable"):
            code = broker.coordination.verify_partition(
                transactional_id, producer, key, knows_abortable=context.version >= _KNOWS_ABORTABLE
            )
            if code is not ErrorCode.none:
                guards[key] = ErrorCode.not_enough_replicas if code in _PASSING else code
    for producer, keys in to_add.items():
        try:
            code = await broker.coordination.add_partitions(transactional_id, producer, keys, transaction_version=2)
        except StorageFailed:
            code = ErrorCode.not_enough_replicas
        if code is not ErrorCode.none:
            guards.update(dict.fromkeys(keys, code))
    return guards


def _append(
    broker: BrokerState,
    context: Context,
    one: PartitionRecords,
    partition: Partition | None,
    guards: Guards,
    looked: Looked | None,
) -> tuple[PartitionAnswer, int | None]:
    """The answer, and the offset that must be on disk before it is given."""
    if partition is None or partition.deleted:
        missing = ErrorCode.unknown_topic_id if context.version >= FIRST_TOPIC_ID else None
        return PartitionAnswer(one.index, missing or ErrorCode.unknown_topic_or_partition), None
    topic = broker.topics.get(partition.topic)
    # Kafka lets in whoever calls himself `__admin_client`: a record that we cannot read would stop the next start.
    if topic is None or topic.is_internal:
        return PartitionAnswer(one.index, ErrorCode.invalid_topic_exception), None
    if not one.records:
        return PartitionAnswer(one.index, ErrorCode.invalid_record, message="no records"), None
    guard = guards.get((partition.topic, partition.index))
    if isinstance(guard, ErrorCode):
        return PartitionAnswer(one.index, guard), None
    try:
        if isinstance(looked, LogError):
            raise looked
        result = partition.append(one.records, guard=guard, accepted=looked)
    except LogError as error:
        return PartitionAnswer(one.index, ErrorCode(error.code), message=str(error)), None
    return _acknowledged(one.index, result), result.last_offset if result.flush_required else None


def _acknowledged(index: int, result: AppendResult) -> PartitionAnswer:
    return PartitionAnswer(
        index, ErrorCode.none, result.base_offset, result.log_append_time_ms, result.log_start_offset
    )


async def _answer(context: Context, answers: list[tuple[str | UUID, list[PartitionAnswer]]], waits: list[Wait]) -> Any:
    for done, position, wait in waits:
        try:
            await wait
        except LogError as error:
            done[position] = PartitionAnswer(done[position].index, ErrorCode(error.code), message=str(error))
    return write_produce(context.version, answers)


def _all_refused(context: Context, request: ProduceRequest, code: ErrorCode) -> Any:
    if request.acks == 0:
        raise MalformedRequest(f"a produce with acks=0 that failed: {code.name}")
    return write_produce(
        context.version,
        [(topic.topic, [PartitionAnswer(one.index, code) for one in topic.partitions]) for topic in request.topics],
    )
