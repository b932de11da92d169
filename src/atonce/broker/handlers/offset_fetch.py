"""OffsetFetch: key 9, versions 1-10.

From version 7 a client may insist on stable offsets: those an open transaction may still change are answered with
UNSTABLE_OFFSET_COMMIT. From 8 one request asks for many groups, from 10 by topic ids.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import paced
from atonce.coordinator.decision import TopicPartition
from atonce.coordinator.groups.groups import FetchedOffset

API_KEY = 9
MIN_VERSION = 1
MAX_VERSION = 10


async def handle(broker: Any, context: Context, request: Any) -> Any:
    groups = {group.group_id: group for group in request.groups}.values()
    return context.reply(
        groups=[await _group(broker, context, one, request.require_stable) async for one in paced(groups)]
    )


async def _group(broker: Any, context: Context, group: Any, require_stable: bool) -> dict[str, Any]:
    by_id = context.version >= 10
    topics = group.topics
    wanted: list[TopicPartition] | None = None
    unknown: list[Any] = []
    if topics is not None:
        wanted = []
        for topic in topics:
            name = broker.topics.name_of(topic)
            if name is None:
                unknown.append(topic)
            else:
                wanted += [TopicPartition(name, index) for index in topic.partition_indexes]
    try:
        error, offsets = await broker.coordination.group(
            lambda now_ms: broker.coordination.groups.fetch_offsets(
                group.group_id,
                wanted,
                require_stable=require_stable,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            )
        )
    except StorageFailed:
        error, offsets = ErrorCode.coordinator_not_available, {}
    if error is not ErrorCode.none and context.version < 2 and wanted is not None:
        offsets = {partition: FetchedOffset(error) for partition in wanted}
    answered = _topics(broker, offsets, by_id)
    for topic in unknown:
        partitions = [_partition(index, FetchedOffset(ErrorCode.unknown_topic_id)) for index in topic.partition_indexes]
        answered.append({"topic_id": topic.topic_id, "partitions": partitions})
    return {"group_id": group.group_id, "error_code": error, "topics": answered}


def _topics(broker: Any, offsets: dict[TopicPartition, FetchedOffset], by_id: bool) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, fetched in offsets.items():
        topics.setdefault(partition.topic, []).append(_partition(partition.partition, fetched))
    if not by_id:
        return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    ids = {name: broker.topics.topic_id(name) for name in topics}
    return [
        {"topic_id": ids[name], "partitions": partitions}
        for name, partitions in topics.items()
        if ids[name] is not None
    ]


def _partition(index: int, fetched: FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": fetched.committed.offset,
        "committed_leader_epoch": fetched.committed.leader_epoch,
        "metadata": fetched.committed.metadata,
        "error_code": fetched.error,
    }
