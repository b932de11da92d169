"""FindCoordinator: key 10, versions 0-6.

One node coordinates everything: groups (key type 0) and transactions (1). Versions from 4 on ask for many keys.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import paced

API_KEY = 10
MIN_VERSION = 0
MAX_VERSION = 6

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


async def handle(broker: Any, context: Context, request: Any) -> Any:
    found = [_find(broker, context, request.key_type, key) async for key in paced(request.coordinator_keys)]
    return context.reply(coordinators=found)


def _find(broker: Any, context: Context, key_type: int, key: str) -> dict[str, Any]:
    if key_type not in (_GROUP, _TRANSACTION):
        message = "share groups are not supported" if key_type == _SHARE else f"unknown key type {key_type}"
        return {
            "key": key,
            "error_code": ErrorCode.invalid_request,
            "error_message": message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    return {
        "key": key,
        "error_code": ErrorCode.none,
        "error_message": "",
        "node_id": broker.node_id,
        "host": context.host,
        "port": context.port,
    }
