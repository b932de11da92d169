"""AlterUserScramCredentials: key 51, version 0.

Sets and deletes users' credentials; durable before it is answered. The password itself never comes here: the client
sends it salted. A user may be named once per request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.scram import MAX_ITERATIONS, MIN_ITERATIONS, Credential, ScramMechanism
from atonce.broker.users import Credentials, drop, put

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 51
MIN_VERSION = 0
MAX_VERSION = 0

_log = logging.getLogger(__name__)
_KNOWN = {mechanism.value: mechanism for mechanism in ScramMechanism}
_TWICE = (ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request")
_FINE = (ErrorCode.none, None)

Verdict = tuple[ErrorCode, str | None]


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    verdicts: dict[str, Verdict] = {}

    def change(users: Credentials) -> None:
        verdicts.clear()
        wanted = {}
        asked = [*((one, True) for one in request.deletions), *((one, False) for one in request.upsertions)]
        for one, deletes in asked:
            verdicts[one.name] = _TWICE if one.name in verdicts else _judge(users, one, deletes)
            wanted[one.name] = (one, deletes)
        for name, (one, deletes) in wanted.items():
            if verdicts[name] is _FINE:
                _apply(users, one, deletes)

    try:
        await asyncio.get_running_loop().run_in_executor(broker.files, broker.users.change, change)
    except OSError as error:
        _log.error("the users could not be stored: %s", error)
        names = {one.name for one in (*request.deletions, *request.upsertions)}
        verdicts = dict.fromkeys(names, (ErrorCode.kafka_storage_error, "The users could not be stored."))
    return context.reply(
        results=[{"user": name, "error_code": code, "error_message": text} for name, (code, text) in verdicts.items()]
    )


def _judge(users: Credentials, one: Any, deletes: bool) -> Verdict:
    if not one.name:
        return ErrorCode.unacceptable_credential, "Username must not be empty"
    if one.mechanism not in _KNOWN:
        return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
    if deletes:
        if _KNOWN[one.mechanism] in users.get(one.name, {}):
            return _FINE
        return ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
    if one.iterations < MIN_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too few iterations"
    if one.iterations > MAX_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too many iterations"
    return _FINE


def _apply(users: Credentials, one: Any, deletes: bool) -> None:
    mechanism = _KNOWN[one.mechanism]
    if deletes:
        drop(users, one.name, mechanism)
        return
    made = Credential.from_salted(mechanism, bytes(one.salt), one.iterations, bytes(one.salted_password))
    put(users, one.name, [made])
