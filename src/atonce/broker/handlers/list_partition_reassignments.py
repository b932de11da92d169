"""ListPartitionReassignments: key 46, version 0. With one node nothing is ever being moved."""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context

API_KEY = 46
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(broker: Any, context: Context, request: Any) -> Any:
    return context.reply(topics=[])
