"""OffsetCommit: key 8, versions 2-10.

Checked against the group's generation or the member's epoch, durable before it is answered. Version 10 names topics by
their ids; versions 2 to 4 may carry a retention time of their own.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode, milliseconds
from atonce.broker.pace import paced
from atonce.coordinator.decision import TopicPartition
from atonce.coordinator.groups.groups import OffsetToCommit

API_KEY = 8
MIN_VERSION = 2
MAX_VERSION = 10


async def handle(broker: Any, context: Context, request: Any) -> Any:
    names = [broker.topics.name_of(topic) for topic in request.topics]
    answers: dict[TopicPartition, ErrorCode] = {}
    wanted: list[OffsetToCommit] = []
    for name, topic in zip(names, request.topics, strict=True):
        count = None if name is None else broker.topics.partition_count(name)
        async for item in paced(topic.partitions):
            if name is not None and count is not None and 0 <= item.partition_index < count:
                wanted.append(offset_to_commit(name, item))
            elif name is not None:
                answers[TopicPartition(name, item.partition_index)] = ErrorCode.unknown_topic_or_partition
    answers |= await _commit(broker, context, request, wanted)
    return context.reply(
        topics=[
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": item.partition_index,
                        "error_code": ErrorCode.unknown_topic_id
                        if name is None
                        else answers[TopicPartition(name, item.partition_index)],
                    }
                    for item in topic.partitions
                ],
            }
            for name, topic in zip(names, request.topics, strict=True)
        ]
    )


async def _commit(
    broker: Any, context: Context, request: Any, wanted: list[OffsetToCommit]
) -> dict[TopicPartition, ErrorCode]:
    retention = request.retention_time
    if not wanted:
        return {}
    try:
        answers: dict[TopicPartition, ErrorCode] = await broker.coordination.group(
            lambda now_ms: broker.coordination.groups.commit_offsets(
                now_ms,
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                wanted,
                retention_ms=-1 if retention is None else milliseconds(retention),
                knows_no_group=context.version >= 9,
            )
        )
    except StorageFailed:
        return {item.partition: ErrorCode.coordinator_not_available for item in wanted}
    return answers


def offset_to_commit(name: str, item: Any) -> OffsetToCommit:
    return OffsetToCommit(
        TopicPartition(name, item.partition_index),
        item.committed_offset,
        item.committed_leader_epoch,
        item.committed_metadata,
    )
