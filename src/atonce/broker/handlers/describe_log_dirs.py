"""DescribeLogDirs: key 35, versions 1-5. One directory, with the size of each partition and what the disk has left."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 35
MIN_VERSION = 1
MAX_VERSION = 5


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(str(topic.topic), set()).update(topic.partitions)
    topics = []
    for topic in broker.topics.all():
        shown = [
            {
                "partition_index": partition.index,
                "partition_size": partition.log.size_bytes,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for partition in topic.partitions
            if wanted is None or partition.index in wanted.get(topic.name, ())
        ]
        if shown:
            topics.append({"name": topic.name, "partitions": shown})
    disk = shutil.disk_usage(broker.root)
    return context.reply(
        results=[
            {
                "error_code": ErrorCode.none,
                "log_dir": str(broker.root.resolve()),
                "topics": topics,
                "total_bytes": disk.total,
                "usable_bytes": disk.free,
            }
        ]
    )
