"""ConsumerGroupHeartbeat: key 68, versions 0-1.

The new group protocol: joins, stays, reports what it owns, leaves; the assignment comes with the answer. Version 1 adds
subscriptions by pattern and lets the client choose its member id.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode, milliseconds
from atonce.coordinator.groups.consumer.records import Assignment, assignment
from atonce.coordinator.groups.groups import HeartbeatRequest

API_KEY = 68
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(broker: Any, context: Context, request: Any) -> Any:
    if context.version >= 1 and not request.member_id:
        return context.reply(error_code=ErrorCode.invalid_request, error_message="MemberId can't be empty.")
    heartbeat = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=context.client_id,
        client_host=context.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
    )
    groups = broker.coordination.groups
    try:
        answer = await broker.coordination.group(lambda now_ms: groups.consumer_heartbeat(now_ms, heartbeat))
    except StorageFailed as error:
        return context.reply(error_code=ErrorCode.coordinator_not_available, error_message=str(error))
    assigned = None
    if answer.assignment is not None:
        assigned = {"topic_partitions": [{"topic_id": t, "partitions": list(p)} for t, p in answer.assignment]}
    return context.reply(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval=answer.interval_ms,
        assignment=assigned,
    )


def _owned(topics: Any) -> Assignment | None:
    if topics is None:
        return None
    return assignment({topic.topic_id: set(topic.partitions) for topic in topics if topic.topic_id is not None})
