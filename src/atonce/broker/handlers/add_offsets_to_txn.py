"""AddOffsetsToTxn: key 25, versions 0-4.

Transaction protocol v1: adds the partition of `__consumer_offsets` that keeps the group's offsets to the transaction.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode
from atonce.coordinator.decision import OFFSETS_PARTITION, ProducerIdAndEpoch

API_KEY = 25
MIN_VERSION = 0
MAX_VERSION = 4


async def handle(broker: Any, context: Context, request: Any) -> Any:
    try:
        error = await broker.coordination.transaction(
            lambda now_ms: broker.coordination.transactions.add_partitions(
                now_ms,
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                frozenset({OFFSETS_PARTITION}),
                transaction_version=1,
            )
        )
    except StorageFailed:
        error = ErrorCode.coordinator_not_available
    if context.version < 2 and error is ErrorCode.producer_fenced:
        error = ErrorCode.invalid_producer_epoch
    return context.reply(error_code=error)
