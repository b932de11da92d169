"""DescribeCluster: key 60, versions 0-2. One broker, which is also the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.describe import CLUSTER_OPERATIONS, NOT_ASKED
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 60
MIN_VERSION = 0
MAX_VERSION = 2

_BROKERS = 1


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    if request.endpoint_type != _BROKERS:
        return context.reply(
            error_code=ErrorCode.mismatched_endpoint_type,
            error_message="The request was sent to an endpoint of the wrong type.",
            endpoint_type=_BROKERS,
        )
    return context.reply(
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[{"broker_id": broker.node_id, "host": context.host, "port": context.port}],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
