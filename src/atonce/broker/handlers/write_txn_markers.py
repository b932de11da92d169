"""WriteTxnMarkers: key 27, versions 1-2.

Between brokers, and from administrators who end a hanging transaction: markers in the partitions that are named.
"""

from __future__ import annotations

from typing import Any

from atonce.broker.context import Context
from atonce.broker.coordination import COORDINATOR_EPOCH
from atonce.coordinator.decision import TopicPartition, WriteMarkers

API_KEY = 27
MIN_VERSION = 1
MAX_VERSION = 2


async def handle(broker: Any, context: Context, request: Any) -> Any:
    answers = []
    for marker in request.markers:
        partitions = frozenset(TopicPartition(t.name, p) for t in marker.topics for p in t.partition_indexes)
        codes = await broker.coordination.write_markers(
            WriteMarkers(
                "",
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                partitions,
                marker.transaction_version,
                min(marker.coordinator_epoch, COORDINATOR_EPOCH),
            )
        )
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": codes[TopicPartition(topic.name, index)]}
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ]
        answers.append({"producer_id": marker.producer_id, "topics": topics})
    return context.reply(markers=answers)
