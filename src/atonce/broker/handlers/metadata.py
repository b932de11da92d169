"""Metadata: key 3, versions 0-13.

Names all topics, or those asked for by name or id. A name that does not exist is created if the request and
`auto.create.topics.enable` allow it. This node is the controller and leads every partition.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.describe import CLUSTER_OPERATIONS, NOT_ASKED, describe_topic
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import once, paced
from atonce.broker.topics import INTERNAL, NewTopic, TopicRefused

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

_log = logging.getLogger(__name__)


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    asked = request.topics
    operations = request.include_topic_authorized_operations
    if asked is None or (context.version == 0 and not asked):
        topics = [describe_topic(broker, topic, operations=operations) for topic in broker.topics.all()]
    else:
        failed: set[str] = set()
        if request.allow_auto_topic_creation:
            failed = await _create_missing(broker, [str(one.name) for one in asked if one.name is not None])
        # Named twice, answered once, as Kafka does.
        distinct = {(one.name, None if one.name is not None else one.topic_id): one for one in asked}
        topics = [_one(broker, one, failed, operations) async for one in paced(distinct.values())]
    return context.reply(
        brokers=[{"node_id": broker.node_id, "host": context.host, "port": context.port, "rack": None}],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


async def _create_missing(broker: BrokerState, names: list[str]) -> set[str]:
    """Returns those that the disk did not take; whatever else cannot be made is answered as missing."""
    if not broker.settings.flag("auto.create.topics.enable"):
        return set()
    missing = []
    for name in once(names):
        if broker.topics.get(name) is None:
            with contextlib.suppress(TopicRefused):
                broker.topics.check_new(name)
                missing.append(NewTopic(name, broker.settings.number("num.partitions")))
    failed = set()
    for name, made in (await broker.topics.create_many(missing)).items():
        if isinstance(made, OSError):
            _log.error("cannot create topic %s: %s", name, made)
            failed.add(name)
    return failed


def _one(broker: BrokerState, asked: Any, failed: set[str], operations: bool) -> dict[str, Any]:
    if asked.name is None:
        topic = broker.topics.by_id(asked.topic_id)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "topic_id": asked.topic_id}
        return describe_topic(broker, topic, operations=operations)
    name = str(asked.name)
    topic = broker.topics.get(name)
    if topic is not None:
        return describe_topic(broker, topic, operations=operations)
    missing = {"name": name, "topic_id": None, "is_internal": name in INTERNAL}
    try:
        broker.topics.check_new(name)
    except TopicRefused as error:
        return {**missing, "error_code": error.code}
    code = ErrorCode.leader_not_available if name in failed else ErrorCode.unknown_topic_or_partition
    return {**missing, "error_code": code}
