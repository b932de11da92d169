"""OffsetDelete: key 47, version 0.

Removes committed offsets of topics that the group is not subscribed to.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode
from atonce.coordinator.decision import TopicPartition

API_KEY = 47
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(broker: Any, context: Context, request: Any) -> Any:
    asked = [TopicPartition(topic.name, item.partition_index) for topic in request.topics for item in topic.partitions]
    known = [p for p in asked if p.partition in range(broker.topics.partition_count(p.topic) or 0)]
    try:
        error, deleted = await broker.coordination.group(
            lambda now_ms: broker.coordination.groups.delete_offsets(now_ms, request.group_id, known)
        )
    except StorageFailed:
        error, deleted = ErrorCode.coordinator_not_available, {}
    if error is not ErrorCode.none:
        return context.reply(error_code=error, topics=())
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in asked:
        code = deleted.get(partition, ErrorCode.unknown_topic_or_partition)
        topics.setdefault(partition.topic, []).append({"partition_index": partition.partition, "error_code": code})
    return context.reply(
        error_code=ErrorCode.none,
        topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    )
