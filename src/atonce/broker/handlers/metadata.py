"""Metadata: key 3, versions 0-13.

Names all topics, or those asked for by name or id. A name that does not exist is created if the request and
`auto.create.topics.enable` allow it. This node is the controller and leads every partition.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.describe import CLUSTER_OPERATIONS, NOT_ASKED, describe_topic
from atonce.broker.messages import ErrorCode
from atonce.broker.topics import INTERNAL, TopicRefused

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

_log = logging.getLogger(__name__)


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    asked = request.topics
    operations = bool(getattr(request, "include_topic_authorized_operations", False))
    if asked is None or (context.version == 0 and not asked):
        topics = [describe_topic(broker, topic, operations=operations) for topic in broker.topics.all()]
    else:
        may_create = context.version < 4 or request.allow_auto_topic_creation
        topics = [await _one(broker, one, bool(may_create), operations) for one in asked]
    cluster_operations = getattr(request, "include_cluster_authorized_operations", False)
    return context.reply(
        brokers=[{"node_id": broker.node_id, "host": context.host, "port": context.port, "rack": None}],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
    )


async def _one(broker: BrokerState, asked: Any, may_create: bool, operations: bool) -> dict[str, Any]:
    topic_id = getattr(asked, "topic_id", None)
    if asked.name is None:
        topic = broker.topics.by_id(topic_id)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "topic_id": topic_id}
        return describe_topic(broker, topic, operations=operations)
    name = str(asked.name)
    topic = broker.topics.get(name)
    if topic is not None:
        return describe_topic(broker, topic, operations=operations)
    missing = {"name": name, "topic_id": None, "is_internal": name in INTERNAL}
    try:
        broker.topics.check_new(name)
        if not may_create or not broker.settings.flag("auto.create.topics.enable"):
            return {**missing, "error_code": ErrorCode.unknown_topic_or_partition}
        topic = await broker.topics.create(name, broker.settings.number("num.partitions"), {})
    except TopicRefused as error:
        created = broker.topics.get(name)  # by someone else, while we waited for our turn
        if created is None:
            return {**missing, "error_code": error.code}
        topic = created
    except OSError as error:
        _log.error("cannot create topic %s: %s", name, error)
        return {**missing, "error_code": ErrorCode.leader_not_available}
    return describe_topic(broker, topic, operations=operations)
