"""LeaveGroup: key 13, versions 0-5.

Versions below 3 name one member; later ones many, also static members by their instance id.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode

API_KEY = 13
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    groups = broker.coordination.groups
    members = [(member.member_id, member.group_instance_id) for member in request.members]
    if not request.group_id:
        return context.reply(error_code=ErrorCode.invalid_group_id)
    try:
        errors = await broker.coordination.group(lambda now_ms: groups.leave_group(now_ms, request.group_id, members))
    except StorageFailed:
        return context.reply(error_code=ErrorCode.coordinator_not_available)
    return context.reply(
        error_code=ErrorCode.none,
        members=[
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        ],
    )
