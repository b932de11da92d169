"""DescribeProducers: key 61, version 0. The producers that a partition remembers, and their open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import once_each, paced

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 61
MIN_VERSION = 0
MAX_VERSION = 0


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    return context.reply(
        topics=[
            {"name": name, "partitions": [_one(broker, name, index) async for index in paced(indexes)]}
            for name, indexes in once_each(request.topics, "name", "partition_indexes")
        ]
    )


def _one(broker: BrokerState, topic: str, index: int) -> dict[str, Any]:
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return {"partition_index": index, "error_code": ErrorCode.unknown_topic_or_partition}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.current_txn_start_offset,
            }
            for producer in partition.log.producers()
        ],
    }
