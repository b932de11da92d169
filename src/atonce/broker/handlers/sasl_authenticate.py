"""SaslAuthenticate: key 36, versions 0-2.

One step of the mechanism that SaslHandshake named. A refusal is answered with SASL_AUTHENTICATION_FAILED after
`connection.failed.authentication.delay.ms`, and the connection is closed. Sessions do not expire (KIP-368).
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.sasl import LoginRefused

API_KEY = 36
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: Any, context: Context, request: Any) -> Any:
    login = context.peer.login
    if login is None:
        message = "SaslAuthenticate request received after successful authentication"
        return context.reply(error_code=ErrorCode.illegal_sasl_state, error_message=message)
    try:
        return context.reply(auth_bytes=await login.answer(bytes(request.auth_bytes)))
    except LoginRefused as refused:
        return context.reply(error_code=ErrorCode.sasl_authentication_failed, error_message=str(refused))
