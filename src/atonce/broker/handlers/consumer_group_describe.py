"""ConsumerGroupDescribe: key 69, versions 0-1.

Groups under the new protocol, with each member's current and target assignment. Classic ones are not found here.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.handlers.describe_groups import ALL_OPERATIONS
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import once, paced
from atonce.coordinator.groups.consumer.group import ConsumerGroup
from atonce.coordinator.groups.consumer.records import Assignment

API_KEY = 69
MIN_VERSION = 0
MAX_VERSION = 1

_CLASSIC_MEMBER, _NEW_PROTOCOL_MEMBER = 0, 1


async def handle(broker: Any, context: Context, request: Any) -> Any:
    described = [_describe(broker, group_id) async for group_id in paced(once(request.group_ids))]
    if request.include_authorized_operations:
        for group in described:
            if group["error_code"] is ErrorCode.none:
                group["authorized_operations"] = ALL_OPERATIONS
    return context.reply(groups=described)


def _describe(broker: Any, group_id: str) -> dict[str, Any]:
    groups = broker.coordination.groups
    group: ConsumerGroup | None = groups.describe_consumer_group(group_id)
    if not group_id:
        return {"group_id": group_id, "error_code": ErrorCode.invalid_group_id}
    if group is None:
        message = f"Group {group_id} is not a consumer group."
        if groups.describe_group(group_id) is None:
            message = f"Group {group_id} not found."
        return {"group_id": group_id, "error_code": ErrorCode.group_id_not_found, "error_message": message}
    return {
        "group_id": group_id,
        "error_code": ErrorCode.none,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": groups.assignor_of(group),
        "members": [_member(broker, group, member_id) for member_id in group.members],
    }


def _member(broker: Any, group: ConsumerGroup, member_id: str) -> dict[str, Any]:
    subscription, current = group.members[member_id], group.current(member_id)
    return {
        "member_id": member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": current.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": list(subscription.topics),
        "subscribed_topic_regex": subscription.regex,
        "assignment": {"topic_partitions": _named(broker, current.assigned)},
        "target_assignment": {"topic_partitions": _named(broker, group.targets.get(member_id, ()))},
        "member_type": _NEW_PROTOCOL_MEMBER if subscription.classic is None else _CLASSIC_MEMBER,
    }


def _named(broker: Any, partitions: Assignment) -> list[dict[str, Any]]:
    """A topic that was deleted meanwhile has no name any more, and is left out."""
    names = {topic_id: broker.topics.topic_name(topic_id) for topic_id, _ in partitions}
    return [
        {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": list(numbers)}
        for topic_id, numbers in partitions
        if names[topic_id] is not None
    ]
