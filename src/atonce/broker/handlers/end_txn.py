"""EndTxn: key 26, versions 0-5.

Answered once the decision is durable; the markers follow. Version 5 (transaction protocol v2) bumps the epoch and
answers with the producer id and epoch of the next transaction.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode
from atonce.coordinator.decision import ProducerIdAndEpoch

API_KEY = 26
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    try:
        answer = await broker.coordination.end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            transaction_version=2 if context.version >= 5 else 1,
        )
    except StorageFailed:
        return context.reply(error_code=ErrorCode.coordinator_not_available)
    error = answer.error
    if context.version < 2 and error is ErrorCode.producer_fenced:
        error = ErrorCode.invalid_producer_epoch
    return context.reply(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch)
