"""ListGroups: key 16, versions 0-5.

From version 4 filtered by state, from 5 by type (classic, consumer).
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

API_KEY = 16
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    states = frozenset(request.states_filter)
    types = frozenset(request.types_filter)
    return context.reply(
        error_code=ErrorCode.none,
        groups=[
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
            for group in broker.coordination.groups.list_groups(states, types)
        ],
    )
