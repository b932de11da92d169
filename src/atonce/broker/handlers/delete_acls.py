"""DeleteAcls: key 31, versions 1-3. Removes what the filters fit; without an authorizer it is SECURITY_DISABLED."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from atonce.broker.acls import Acl
from atonce.broker.context import Context
from atonce.broker.handlers.describe_acls import DISABLED, read_filter
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 31
MIN_VERSION = 1
MAX_VERSION = 3

_log = logging.getLogger(__name__)


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    acls = broker.acls
    if acls is None:
        return context.reply(filter_results=[DISABLED for _ in request.filters])
    found: list[list[Acl]] = []

    def change(known: set[Acl]) -> None:
        found[:] = [acls.matching(read_filter(one)) for one in request.filters]
        known.difference_update(acl for matching in found for acl in matching)

    try:
        await asyncio.get_running_loop().run_in_executor(broker.files, acls.change, change)
    except OSError as error:
        _log.error("the ACLs could not be stored: %s", error)
        failed = {"error_code": ErrorCode.kafka_storage_error, "error_message": "The ACLs could not be stored."}
        return context.reply(filter_results=[failed for _ in request.filters])
    return context.reply(filter_results=[{"matching_acls": [_shown(acl) for acl in one]} for one in found])


def _shown(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": int(acl.resource),
        "resource_name": acl.name,
        "pattern_type": int(acl.pattern),
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
