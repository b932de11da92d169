"""DescribeAcls: key 29, versions 1-3. Without an authorizer it is SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.acls import Acl, AclFilter
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 29
MIN_VERSION = 1
MAX_VERSION = 3

DISABLED = {"error_code": ErrorCode.security_disabled, "error_message": "No Authorizer is configured."}


def read_filter(asked: Any) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    if broker.acls is None:
        return context.reply(**DISABLED)
    resources: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in broker.acls.matching(read_filter(request)):
        resources.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)
    return context.reply(
        resources=[
            {
                "resource_type": int(kind),
                "resource_name": name,
                "pattern_type": int(pattern),
                "acls": [
                    {
                        "principal": acl.principal,
                        "host": acl.host,
                        "operation": int(acl.operation),
                        "permission_type": int(acl.permission),
                    }
                    for acl in acls
                ],
            }
            for (kind, name, pattern), acls in resources.items()
        ]
    )
