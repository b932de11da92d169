"""DescribeTransactions: key 65, version 0."""

from __future__ import annotations

import datetime
from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import once, paced

API_KEY = 65
MIN_VERSION = 0
MAX_VERSION = 0

_NO_TIME = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) - datetime.timedelta(milliseconds=1)


async def handle(broker: Any, context: Context, request: Any) -> Any:
    names = paced(once(request.transactional_ids))
    return context.reply(transaction_states=[_describe(broker, name) async for name in names])


def _describe(broker: Any, transactional_id: str) -> dict[str, Any]:
    metadata = broker.coordination.transactions.describe(transactional_id)
    if metadata is None:
        error = ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
        return {
            "transactional_id": transactional_id,
            "error_code": error,
            "transaction_start_time": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        }
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return {
        "transactional_id": transactional_id,
        "error_code": ErrorCode.none,
        "transaction_state": metadata.state.label,
        "transaction_timeout": metadata.timeout_ms,
        "transaction_start_time": metadata.start_ms if metadata.start_ms >= 0 else _NO_TIME,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
