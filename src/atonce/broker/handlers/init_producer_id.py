"""InitProducerId: key 22, versions 0-5.

A new producer id; or, for a transactional id, the same one with a higher epoch, which fences whoever held it before. An
open transaction is aborted first (CONCURRENT_TRANSACTIONS: ask again). From version 3 a producer may go on after an
error by naming its id and epoch. Two-phase commit from outside (version 6) is not offered.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import StorageFailed
from atonce.broker.messages import ErrorCode, milliseconds
from atonce.coordinator.decision import ProducerIdAndEpoch

API_KEY = 22
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(broker: Any, context: Context, request: Any) -> Any:
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    nothing_expected = expected == ProducerIdAndEpoch(-1, -1)
    if not nothing_expected and -1 in expected:
        return context.reply(error_code=ErrorCode.invalid_request, producer_id=-1, producer_epoch=-1)
    try:
        answer = await broker.coordination.transaction(
            lambda now_ms: broker.coordination.transactions.init_producer_id(
                now_ms,
                request.transactional_id,
                milliseconds(request.transaction_timeout),
                None if nothing_expected else expected,
            )
        )
    except StorageFailed:
        return context.reply(error_code=ErrorCode.coordinator_not_available, producer_id=-1, producer_epoch=-1)
    error = answer.error
    if context.version < 4 and error is ErrorCode.producer_fenced:
        error = ErrorCode.invalid_producer_epoch
    return context.reply(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch)
