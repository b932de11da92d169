"""SyncGroup: key 14, versions 0-5.

The leader brings the assignment; everyone waits for it and gets his part once it is durable.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode
from atonce.coordinator.groups.groups import SyncRequest

API_KEY = 14
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    sync = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((item.member_id, bytes(item.assignment)) for item in request.assignments),
    )
    if context.version >= 5 and (sync.protocol_type is None or sync.protocol is None):
        return context.reply(error_code=ErrorCode.inconsistent_group_protocol, assignment=b"")
    try:
        answer = await broker.coordination.group(lambda now_ms: broker.coordination.groups.sync_group(now_ms, sync))
    except StorageFailed:
        return context.reply(error_code=ErrorCode.coordinator_not_available, assignment=b"")
    return context.reply(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
