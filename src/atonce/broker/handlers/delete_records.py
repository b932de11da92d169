"""DeleteRecords: key 21, versions 0-2. Moves the log start offset; -1 means up to the high watermark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.log.errors import LogError

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 21
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    topics = []
    for topic in request.topics:
        name = str(topic.name)
        done = [await _delete(broker, name, one.partition_index, one.offset) for one in topic.partitions]
        topics.append({"name": name, "partitions": done})
    return context.reply(topics=topics)


async def _delete(broker: BrokerState, name: str, index: int, before: int) -> dict[str, Any]:
    answer = {"partition_index": index, "low_watermark": -1}
    topic = broker.topics.get(name)
    partition = broker.topics.partition(name, index)
    if topic is None or partition is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
    if topic.is_internal:
        return {**answer, "error_code": ErrorCode.invalid_topic_exception}
    if not partition.log.config.deletes:
        return {**answer, "error_code": ErrorCode.policy_violation}
    if before < -1:
        return {**answer, "error_code": ErrorCode.offset_out_of_range}
    async with partition.cleaning:
        if partition.deleted:
            return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
        work = asyncio.get_running_loop().run_in_executor(broker.files, partition.log.delete_records, before)
        try:
            return {**answer, "low_watermark": await work, "error_code": ErrorCode.none}
        except LogError as error:
            return {**answer, "error_code": ErrorCode(error.code)}
