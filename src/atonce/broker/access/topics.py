"""What concerns topics: nobody learns of a topic that he may not describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import UUID

from atonce.broker.access.guard import FAILED, REFUSED, Guard, Handle, changed, each, operations, some, split
from atonce.broker.acls import CLUSTER_NAME, Operation, Resource
from atonce.broker.context import Context
from atonce.broker.describe import NOT_ASKED
from atonce.broker.messages import ErrorCode, build

_REFUSED = REFUSED[Resource.TOPIC]
_TOPIC_RESOURCE = 2


def describes(context: Context, name: str) -> bool:
    return context.peer.may(Operation.DESCRIBE, Resource.TOPIC, name)


def is_forbidden(broker: Any, context: Context, operation: Operation, topic: str | UUID) -> bool:
    """Of a topic by name or id; an id that nobody knows is left for the handler to refuse."""
    if context.peer.acls is None:
        return False
    name = broker.topics.topic_name(topic) if isinstance(topic, UUID) else topic
    return name is not None and not context.peer.may(operation, Resource.TOPIC, name)


def _partitions(topic: str, partitions: str, index: str, **values: Any) -> Callable[[Any], dict[str, Any]]:
    """The refusal of a topic whose answer stands at each of its partitions."""

    def refusal(one: Any) -> dict[str, Any]:
        asked = getattr(one, partitions)
        numbers = [getattr(each_one, index, each_one) for each_one in asked]
        refused = [{index: number, "error_code": _REFUSED, **values} for number in numbers]
        return {topic: getattr(one, topic), "partitions": refused}

    return refusal


def _name(one: Any) -> str:
    return str(one.name)


async def _metadata(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    refused: list[dict[str, Any]] = []
    asked = request.topics
    is_all = asked is None or (context.version == 0 and not asked)
    if not is_all:
        creates = request.allow_auto_topic_creation and broker.settings.flag("auto.create.topics.enable")
        allowed = []
        for one in asked:
            refusal = _refusal(broker, context, one, creates)
            if refusal is None:
                allowed.append(one)
            else:
                refused.append(refusal)
        request = dataclasses.replace(request, topics=tuple(allowed))
    reply = await handle(broker, context, request)
    shown = reply.values["topics"]
    if is_all:
        shown = [one for one in shown if describes(context, one["name"])]
    elif not request.topics:
        shown = []  # version 0 takes an empty list for all topics
    cluster = reply.values["cluster_authorized_operations"]
    if cluster != NOT_ASKED:
        cluster = cluster_operations(context, cluster)
    return changed(
        reply, topics=[*(_shown(context, one) for one in shown), *refused], cluster_authorized_operations=cluster
    )


def _refusal(broker: Any, context: Context, one: Any, creates: bool) -> dict[str, Any] | None:
    if one.name is None:
        name = broker.topics.topic_name(one.topic_id)
        hidden = name is not None and not describes(context, name)
        return {"error_code": _REFUSED, "name": None, "topic_id": one.topic_id} if hidden else None
    name = str(one.name)
    may = describes(context, name)
    if may and creates and broker.topics.get(name) is None:
        may = _may_create(context, name)
    return None if may else {"error_code": _REFUSED, "name": name, "topic_id": None}


def _may_create(context: Context, name: str) -> bool:
    create = Operation.CREATE
    return context.peer.may_in_cluster(create) or context.peer.may(create, Resource.TOPIC, name)


def _shown(context: Context, topic: dict[str, Any]) -> dict[str, Any]:
    known = topic.get("topic_authorized_operations", NOT_ASKED)
    if known == NOT_ASKED:
        return topic
    return {**topic, "topic_authorized_operations": operations(context, Resource.TOPIC, topic["name"], known)}


def cluster_operations(context: Context, known: int) -> int:
    if not context.peer.may_in_cluster(Operation.DESCRIBE):
        return 0
    return operations(context, Resource.CLUSTER, CLUSTER_NAME, known)


async def _describe_topic_partitions(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    refused: list[Any] = []
    if request.topics:
        allowed, refused = split(request.topics, lambda one: describes(context, str(one.name)))
    else:
        allowed = [_topic_request(request, name) for name in broker.topics.names() if describes(context, name)]
    answers = [{"error_code": _REFUSED, "name": one.name} for one in refused]
    if not allowed:
        return context.reply(topics=answers, next_cursor=None)
    reply = await handle(broker, context, dataclasses.replace(request, topics=tuple(allowed)))
    shown = [_shown(context, one) for one in reply.values["topics"]]
    return changed(reply, topics=[*shown, *answers])


async def _create_topics(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    def refusal(one: Any) -> dict[str, Any]:
        nothing = {"num_partitions": -1, "replication_factor": -1, "configs": []}
        return {"name": one.name, "error_code": _REFUSED, "error_message": FAILED, **nothing}

    def may(one: Any) -> bool:
        return _may_create(context, str(one.name))

    reply = await some(handle, broker, context, request, "topics", "topics", may, refusal)
    return changed(reply, topics=[_without_configs(context, one) for one in reply.values["topics"]])


def _without_configs(context: Context, made: dict[str, Any]) -> dict[str, Any]:
    """Who may create a topic may still not be told its settings."""
    if made["error_code"] is not ErrorCode.none or context.peer.may(
        Operation.DESCRIBE_CONFIGS, Resource.TOPIC, made["name"]
    ):
        return made
    hidden = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    return {**made, **hidden, "topic_config_error_code": _REFUSED}


async def _delete_topics(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    def refused(name: str | None, topic_id: Any) -> dict[str, Any]:
        return {"name": name, "topic_id": topic_id, "error_code": _REFUSED, "error_message": FAILED}

    def known(one: Any) -> str | None:
        return str(one.name) if one.name is not None else broker.topics.topic_name(one.topic_id)

    def may(one: Any) -> bool:
        name = known(one)
        return name is None or context.peer.may(Operation.DELETE, Resource.TOPIC, name)

    def refusal(one: Any) -> dict[str, Any]:
        name = known(one)
        by_id = one.name is None
        # An id does not tell its name to somebody who may not know it.
        return refused(None if by_id and not describes(context, str(name)) else name, one.topic_id)

    return await some(handle, broker, context, request, "topics", "responses", may, refusal)


def _settings(operation: Operation, answered: str) -> Guard:
    """Settings of topics are the topics' own; those of the broker are the cluster's."""

    async def guard(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
        def may(one: Any) -> bool:
            if one.resource_type == _TOPIC_RESOURCE:
                return context.peer.may(operation, Resource.TOPIC, one.resource_name)
            return context.peer.may_in_cluster(operation)

        def refusal(one: Any) -> dict[str, Any]:
            resource = Resource.TOPIC if one.resource_type == _TOPIC_RESOURCE else Resource.CLUSTER
            return {
                "error_code": REFUSED[resource],
                "error_message": FAILED,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }

        return await some(handle, broker, context, request, "resources", answered, may, refusal)

    return guard


def _topic_request(request: Any, name: str) -> Any:
    listed: Any = next(field for field in dataclasses.fields(request) if field.name == "topics").type
    return build(listed.__args__[0], {"name": name})


_LIST_OFFSETS = each(
    Operation.DESCRIBE,
    Resource.TOPIC,
    "topics",
    "topics",
    _name,
    _partitions("name", "partitions", "partition_index", timestamp=-1, offset=-1, leader_epoch=-1),
)
_EPOCHS = each(
    Operation.DESCRIBE,
    Resource.TOPIC,
    "topics",
    "topics",
    lambda one: str(one.topic),
    _partitions("topic", "partitions", "partition", leader_epoch=-1, end_offset=-1),
)
_DELETE_RECORDS = each(
    Operation.DELETE,
    Resource.TOPIC,
    "topics",
    "topics",
    _name,
    _partitions("name", "partitions", "partition_index", low_watermark=-1),
)
_PRODUCERS = each(
    Operation.READ,
    Resource.TOPIC,
    "topics",
    "topics",
    _name,
    _partitions("name", "partition_indexes", "partition_index", error_message=FAILED),
)
_GROW = each(
    Operation.ALTER,
    Resource.TOPIC,
    "topics",
    "results",
    _name,
    lambda one: {"name": one.name, "error_code": _REFUSED, "error_message": FAILED},
)

GUARDS: dict[int, Guard] = {
    2: _LIST_OFFSETS,
    3: _metadata,
    19: _create_topics,
    20: _delete_topics,
    21: _DELETE_RECORDS,
    23: _EPOCHS,
    32: _settings(Operation.DESCRIBE_CONFIGS, "results"),
    33: _settings(Operation.ALTER_CONFIGS, "responses"),
    37: _GROW,
    44: _settings(Operation.ALTER_CONFIGS, "responses"),
    61: _PRODUCERS,
    75: _describe_topic_partitions,
}
