"""AlterConfigs: key 33, versions 0-2. Replaces all settings of a topic, or all dynamic ones of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.alter import alter_each
from atonce.broker.context import Context

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 33
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    return await alter_each(
        broker, context, request, lambda _broker, _topic, configs: {config.name: config.value for config in configs}
    )
