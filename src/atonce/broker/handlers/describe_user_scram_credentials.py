"""DescribeUserScramCredentials: key 50, version 0. Which mechanisms each user has, and with how many iterations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 50
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    known = broker.users.all()
    named = Counter(user.name for user in request.users or ())
    results = []
    for name in named or sorted(known):
        if named[name] > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            results.append({"user": name, "error_code": ErrorCode.duplicate_resource, "error_message": message})
        elif name not in known:
            message = f"Attempt to describe a user credential that does not exist: {name}"
            results.append({"user": name, "error_code": ErrorCode.resource_not_found, "error_message": message})
        else:
            infos = [{"mechanism": one.mechanism.value, "iterations": one.iterations} for one in known[name].values()]
            results.append({"user": name, "credential_infos": infos})
    return context.reply(results=results)
