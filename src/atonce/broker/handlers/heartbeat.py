"""Heartbeat: key 12, versions 0-4.

Keeps a member of a classic group alive and tells it of a rebalance (REBALANCE_IN_PROGRESS).
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode

API_KEY = 12
MIN_VERSION = 0
MAX_VERSION = 4


async def handle(broker: Any, context: Context, request: Any) -> Any:
    groups = broker.coordination.groups
    instance_id = request.group_instance_id
    try:
        error = await broker.coordination.group(
            lambda now_ms: groups.heartbeat(
                now_ms, request.group_id, request.member_id, instance_id, request.generation_id
            )
        )
    except StorageFailed:
        error = ErrorCode.coordinator_not_available
    return context.reply(error_code=error)
