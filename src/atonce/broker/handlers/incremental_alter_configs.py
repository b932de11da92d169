"""IncrementalAlterConfigs: key 44, versions 0-1. Sets, deletes, appends to and subtracts from single settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.alter import alter_each, changed
from atonce.broker.context import Context

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 44
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    return await alter_each(broker, context, request, changed)
