"""DeleteAcls: key 31, versions 1-3. There is no authorizer: answered with SECURITY_DISABLED, as Kafka does then."""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

API_KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3

_REFUSED = {"error_code": ErrorCode.security_disabled, "error_message": "No Authorizer is configured on the broker"}


async def handle(broker: Any, context: Context, request: Any) -> Any:
    return context.reply(filter_results=[_REFUSED for _ in request.filters])
