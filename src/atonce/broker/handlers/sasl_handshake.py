"""SaslHandshake: key 17, versions 0-1.

Names the mechanism that the client will use, and learns which ones there are. After version 0 the tokens follow without
Kafka's headers. On a listener without SASL, or after a login, it is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

API_KEY = 17
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(broker: Any, context: Context, request: Any) -> Any:
    login = context.peer.login
    if login is None:
        return context.reply(error_code=ErrorCode.illegal_sasl_state)
    error = await login.choose(request.mechanism, raw=context.version == 0)
    return context.reply(error_code=error, mechanisms=login.mechanisms)
