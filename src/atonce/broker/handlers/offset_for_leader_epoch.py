"""OffsetForLeaderEpoch: key 23, versions 2-4. Where a leader epoch ends in the log: consumers see truncation by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import paced

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 23
MIN_VERSION = 2
MAX_VERSION = 4


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    return context.reply(
        topics=[
            {
                "topic": topic.topic,
                "partitions": [_one(broker, str(topic.topic), one) async for one in paced(topic.partitions)],
            }
            for topic in request.topics
        ]
    )


def _one(broker: BrokerState, topic: str, asked: Any) -> dict[str, Any]:
    answer = {"partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    partition = broker.topics.partition(topic, asked.partition)
    if partition is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
    epoch = asked.current_leader_epoch
    if epoch >= 0 and epoch != partition.leader_epoch:
        fenced = epoch < partition.leader_epoch
        return {**answer, "error_code": ErrorCode.fenced_leader_epoch if fenced else ErrorCode.unknown_leader_epoch}
    if asked.leader_epoch == partition.leader_epoch:
        end = partition.log.high_watermark
        return {**answer, "leader_epoch": asked.leader_epoch, "end_offset": end, "error_code": ErrorCode.none}
    found = partition.log.epoch_end_offset(asked.leader_epoch)
    return {
        **answer,
        "leader_epoch": found.leader_epoch,
        "end_offset": found.end_offset,
        "error_code": ErrorCode.none,
    }
