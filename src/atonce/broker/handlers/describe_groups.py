"""DescribeGroups: key 15, versions 0-6.

Classic groups. One that does not exist is Dead; from version 6 on that is also an error, GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import once, paced
from atonce.coordinator.groups.classic.group import ClassicGroup
from atonce.coordinator.groups.states import ClassicState

API_KEY = 15
MIN_VERSION = 0
MAX_VERSION = 6

# Without an authorizer everyone may do all that can be done to a group: one bit for each of Kafka's operations
# read, delete, describe, describe configs and alter configs.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def handle(broker: Any, context: Context, request: Any) -> Any:
    groups = broker.coordination.groups
    described = [_describe(groups, context, group_id) async for group_id in paced(once(request.groups))]
    if request.include_authorized_operations:
        for group in described:
            if group["error_code"] is ErrorCode.none:
                group["authorized_operations"] = ALL_OPERATIONS
    return context.reply(groups=described)


def _describe(groups: Any, context: Context, group_id: str) -> dict[str, Any]:
    group: ClassicGroup | None = groups.describe_group(group_id)
    if group is None:
        missing = {"group_id": group_id, "group_state": ClassicState.DEAD.value}
        if context.version < 6:
            return {**missing, "error_code": ErrorCode.none}
        message = f"Group {group_id} not found."
        return {**missing, "error_code": ErrorCode.group_id_not_found, "error_message": message}
    stable = group.state is ClassicState.STABLE
    return {
        "group_id": group_id,
        "error_code": ErrorCode.none,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }
