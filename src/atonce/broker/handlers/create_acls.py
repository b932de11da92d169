"""CreateAcls: key 30, versions 1-3.

Durable before it is answered. Each entry is made, or refused, for itself. Without an authorizer it is
SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from atonce.broker.acls import CLUSTER_NAME, Acl, Operation, Pattern, Permission, Resource
from atonce.broker.context import Context
from atonce.broker.handlers.describe_acls import DISABLED
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 30
MIN_VERSION = 1
MAX_VERSION = 3

_log = logging.getLogger(__name__)


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    if broker.acls is None:
        return context.reply(results=[DISABLED for _ in request.creations])
    read = [_read(one) for one in request.creations]
    made = [one for one in read if isinstance(one, Acl)]
    results = [{} if isinstance(one, Acl) else _refused(one) for one in read]
    if made:
        try:
            await asyncio.get_running_loop().run_in_executor(
                broker.files, broker.acls.change, lambda known: known.update(made)
            )
        except OSError as error:
            _log.error("the ACLs could not be stored: %s", error)
            failed = {"error_code": ErrorCode.kafka_storage_error, "error_message": "The ACLs could not be stored."}
            results = [failed for _ in read]
    return context.reply(results=results)


def _refused(message: str) -> dict[str, Any]:
    return {"error_code": ErrorCode.invalid_request, "error_message": message}


def _read(one: Any) -> Acl | str:
    """The entry, or what is wrong with it."""
    if one.resource_type == Resource.CLUSTER and one.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not one.resource_name:
        return "Invalid empty resource name"
    for what, value, known in (
        ("resourceType", one.resource_type, set(Resource) - {Resource.ANY}),
        ("patternType", one.resource_pattern_type, {Pattern.LITERAL, Pattern.PREFIXED}),
        ("operation", one.operation, set(Operation) - {Operation.ANY}),
        ("permissionType", one.permission_type, {Permission.DENY, Permission.ALLOW}),
    ):
        if value not in known:
            return f"Invalid {what} {value}"
    if ":" not in one.principal:
        return (
            f"Could not parse principal from `{one.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )
    return Acl(
        Resource(one.resource_type),
        one.resource_name,
        Pattern(one.resource_pattern_type),
        one.principal,
        one.host,
        Operation(one.operation),
        Permission(one.permission_type),
    )
