"""TxnOffsetCommit: key 28, versions 0-5.

Offsets that become visible when the transaction commits. Version 5 (transaction protocol v2) adds the group's partition
of `__consumer_offsets` to the transaction by itself; older ones must have sent AddOffsetsToTxn, which is verified.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.handlers.offset_commit import offset_to_commit
from atonce.broker.messages import ErrorCode
from atonce.coordinator.decision import OFFSETS_PARTITION, Decision, ProducerIdAndEpoch, TopicPartition
from atonce.coordinator.groups.groups import OffsetToCommit

API_KEY = 28
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    answers: dict[TopicPartition, ErrorCode] = {}
    wanted: list[OffsetToCommit] = []
    for topic in request.topics:
        count = broker.topics.partition_count(topic.name) or 0
        for item in topic.partitions:
            if 0 <= item.partition_index < count:
                wanted.append(offset_to_commit(topic.name, item))
            else:
                answers[TopicPartition(topic.name, item.partition_index)] = ErrorCode.unknown_topic_or_partition
    if wanted:
        answers |= await _commit(broker, context, request, wanted)
    return context.reply(
        topics=[
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": item.partition_index,
                        "error_code": answers[TopicPartition(topic.name, item.partition_index)],
                    }
                    for item in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    )


async def _commit(
    broker: Any, context: Context, request: Any, wanted: list[OffsetToCommit]
) -> dict[TopicPartition, ErrorCode]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    coordination = broker.coordination

    def failed(error: ErrorCode) -> dict[TopicPartition, ErrorCode]:
        return {item.partition: error for item in wanted}

    def decide(now_ms: int) -> Decision[dict[TopicPartition, ErrorCode]]:
        # In the same turn as the append: a commit that comes late cannot slip behind its transaction's marker.
        error = coordination.verify_partition(
            request.transactional_id, producer, OFFSETS_PARTITION, knows_abortable=context.version >= 4
        )
        if error is not ErrorCode.none:
            return Decision(failed(error))
        decision: Decision[dict[TopicPartition, ErrorCode]] = coordination.groups.commit_offsets_in_transaction(
            now_ms,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            wanted,
            producer,
        )
        return decision

    if not request.group_id:
        return failed(ErrorCode.invalid_group_id)
    try:
        if context.version >= 5:
            error = await coordination.add_partitions(
                request.transactional_id, producer, (OFFSETS_PARTITION,), transaction_version=2
            )
            if error is not ErrorCode.none:
                return failed(error)
        answers: dict[TopicPartition, ErrorCode] = await coordination.group(decide)
    except StorageFailed:
        return failed(ErrorCode.coordinator_not_available)
    return answers
