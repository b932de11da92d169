"""DeleteGroups: key 42, versions 0-2.

Removes empty groups together with their offsets.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode

API_KEY = 42
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: Any, context: Context, request: Any) -> Any:
    names = list(dict.fromkeys(request.groups_names))
    try:
        errors = await broker.coordination.group(lambda now_ms: broker.coordination.groups.delete_groups(now_ms, names))
    except StorageFailed:
        errors = dict.fromkeys(names, ErrorCode.coordinator_not_available)
    return context.reply(results=[{"group_id": name, "error_code": errors[name]} for name in names])
