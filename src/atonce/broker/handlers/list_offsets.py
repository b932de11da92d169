"""ListOffsets: key 2, versions 1-11.

By timestamp, or by one of Kafka's special ones: latest -1, earliest -2, largest timestamp -3, earliest local -4 (the
same as earliest here), latest tiered -5 and earliest pending upload -6 (there is no tiered storage: no offset).
`read_committed` ends at the last stable offset.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import paced
from atonce.broker.partition import Partition
from atonce.log.errors import LogError
from atonce.log.results import TimestampOffset

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 2
MIN_VERSION = 1
MAX_VERSION = 11

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The version that brought each special timestamp.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_NOTHING = TimestampOffset(-1, -1, -1)


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    committed = request.isolation_level == 1
    named = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        async for one in paced(topic.partitions):
            if named[topic.name, one.partition_index] > 1:
                answers.append({**_missing(one), "error_code": ErrorCode.invalid_request})
            else:
                answers.append(await _one(broker, context, str(topic.name), one, committed))
        topics.append({"name": topic.name, "partitions": answers})
    return context.reply(topics=topics)


def _missing(asked: Any) -> dict[str, Any]:
    return {"partition_index": asked.partition_index, "timestamp": -1, "offset": -1, "leader_epoch": -1}


async def _one(broker: BrokerState, context: Context, topic: str, asked: Any, committed: bool) -> dict[str, Any]:
    answer = _missing(asked)
    partition = broker.topics.partition(topic, asked.partition_index)
    if partition is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
    epoch = asked.current_leader_epoch
    if epoch >= 0 and epoch != partition.leader_epoch:
        fenced = epoch < partition.leader_epoch
        return {**answer, "error_code": ErrorCode.fenced_leader_epoch if fenced else ErrorCode.unknown_leader_epoch}
    if context.version < _SINCE.get(asked.timestamp, 0) or asked.timestamp < EARLIEST_PENDING_UPLOAD:
        return {**answer, "error_code": ErrorCode.unsupported_version}
    if partition.log.is_offline:
        return {**answer, "error_code": ErrorCode.kafka_storage_error}
    try:
        if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:  # looks into the log's files
            work = functools.partial(_look_up, partition, asked.timestamp, committed)
            found = await asyncio.get_running_loop().run_in_executor(broker.readers, work)
        else:
            found = _look_up(partition, asked.timestamp, committed)
    except LogError as error:
        return {**answer, "error_code": ErrorCode(error.code)}
    return {
        **answer,
        "error_code": ErrorCode.none,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _look_up(partition: Partition, timestamp: int, committed: bool) -> TimestampOffset:
    log = partition.log
    end = log.last_stable_offset if committed else log.high_watermark
    match timestamp:
        case -1:
            return TimestampOffset(-1, end, partition.leader_epoch)
        case -2 | -4:
            return TimestampOffset(-1, log.log_start_offset, partition.leader_epoch)
        case -3:
            found = log.max_timestamp()
        case -5 | -6:
            return _NOTHING
        case _:
            found = log.offset_for_timestamp(timestamp)
    # What is not yet visible to this reader is not there.
    return found if found is not None and found.offset < end else _NOTHING
