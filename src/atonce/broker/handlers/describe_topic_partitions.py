"""DescribeTopicPartitions: key 75, version 0.

Pages through topics in the order of their names: at most `response_partition_limit` partitions (2000), then a cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.describe import describe_topic
from atonce.broker.messages import ErrorCode
from atonce.broker.topics import TopicRefused, check_topic_name

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 75
MIN_VERSION = 0
MAX_VERSION = 0

_MOST_PARTITIONS = 2000


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    names = sorted({str(topic.name) for topic in request.topics}) or list(broker.topics.names())
    cursor = request.cursor
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
    topics: list[dict[str, Any]] = []
    for name in names:
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            return context.reply(topics=topics, next_cursor={"topic_name": name, "partition_index": start})
        topic = broker.topics.get(name)
        if topic is None:
            topics.append({"error_code": _missing(name), "name": name})
            continue
        shown = describe_topic(broker, topic, operations=True)
        # Null would be allowed by the schema, and is not expected by the Java client.
        page = [
            {**one, "eligible_leader_replicas": (), "last_known_elr": ()}
            for one in shown["partitions"][start : start + left]
        ]
        topics.append({**shown, "partitions": page})
        left -= len(page)
        if start + len(page) < len(topic.partitions):
            after = start + len(page)
            return context.reply(topics=topics, next_cursor={"topic_name": name, "partition_index": after})
    return context.reply(topics=topics, next_cursor=None)


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except TopicRefused as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
