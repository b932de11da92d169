"""JoinGroup: key 11, versions 0-9.

Waits until the rebalance is complete. From version 4 a new member is given its id first (MEMBER_ID_REQUIRED); from 9
a static member that comes back as the leader is told to skip the assignment.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode, milliseconds
from atonce.coordinator.groups.groups import JoinRequest

API_KEY = 11
MIN_VERSION = 0
MAX_VERSION = 9


async def handle(broker: Any, context: Context, request: Any) -> Any:
    session_timeout_ms = milliseconds(request.session_timeout)
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if context.version < 1 else milliseconds(request.rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        requires_known_id=context.version >= 4 and request.group_instance_id is None,
        knows_skip_assignment=context.version >= 9,
    )
    try:
        answer = await broker.coordination.group(lambda now_ms: broker.coordination.groups.join_group(now_ms, join))
    except StorageFailed:
        return _reply(context, ErrorCode.coordinator_not_available, member_id=request.member_id)
    return _reply(
        context,
        answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        # Null was not allowed before version 7.
        protocol_name=answer.protocol if context.version >= 7 else answer.protocol or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            {"member_id": member_id, "group_instance_id": instance, "metadata": metadata}
            for member_id, instance, metadata in answer.members
        ],
    )


def _reply(context: Context, error: ErrorCode, **values: Any) -> Any:
    defaults = {"generation_id": -1, "protocol_name": None if context.version >= 7 else "", "leader": ""}
    return context.reply(error_code=error, **{**defaults, **values})
