"""What concerns groups and their offsets."""

from __future__ import annotations

import dataclasses
from typing import Any

from atonce.broker.access.guard import FAILED, REFUSED, Guard, Handle, changed, each, operations, some, split, whole
from atonce.broker.access.topics import describes
from atonce.broker.acls import Operation, Resource
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

_REFUSED = REFUSED[Resource.GROUP]
_NO_TOPIC = REFUSED[Resource.TOPIC]
_COORDINATED = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}


def named(topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if topic.name is None else {"name": topic.name}


def refused_commit(topic: Any, error: ErrorCode) -> dict[str, Any]:
    return {
        **named(topic),
        "partitions": [{"partition_index": one.partition_index, "error_code": error} for one in topic.partitions],
    }


async def _offset_commit(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if not context.peer.may(Operation.READ, Resource.GROUP, request.group_id):
        return context.reply(topics=[refused_commit(one, _REFUSED) for one in request.topics])
    return await some(
        handle,
        broker,
        context,
        request,
        "topics",
        "topics",
        lambda one: may_read(broker, context, one),
        lambda one: refused_commit(one, _NO_TOPIC),
    )


def may_read(broker: Any, context: Context, topic: Any) -> bool:
    name = broker.topics.name_of(topic)
    return name is None or context.peer.may(Operation.READ, Resource.TOPIC, name)


async def _offset_fetch(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    mine, others = split(request.groups, lambda one: context.peer.may(Operation.DESCRIBE, Resource.GROUP, one.group_id))
    hidden: dict[str, list[dict[str, Any]]] = {}
    asked = []
    for group in mine:
        allowed, refused = _visible(broker, context, group.topics)
        hidden[group.group_id] = [_unfetched(one, _NO_TOPIC) for one in refused]
        asked.append(dataclasses.replace(group, topics=allowed))
    answers = [
        {"group_id": one.group_id, "error_code": _REFUSED, "topics": _told(context, one.topics)} for one in others
    ]
    if not asked:
        return context.reply(groups=answers)
    reply = await handle(broker, context, dataclasses.replace(request, groups=tuple(asked)))
    shown = [
        {**one, "topics": [*_shown(broker, context, one["topics"]), *hidden[one["group_id"]]]}
        for one in reply.values["groups"]
    ]
    return changed(reply, groups=[*shown, *answers])


def _told(context: Context, topics: Any) -> list[dict[str, Any]]:
    """The first versions have no other place for the refusal of a group than its partitions."""
    return [_unfetched(one, _REFUSED) for one in topics or ()] if context.version < 2 else []


def _visible(broker: Any, context: Context, topics: Any) -> tuple[Any, list[Any]]:
    """Those that may be asked for, and the others; None (all topics) stays None."""
    if topics is None:
        return None, []

    def may(one: Any) -> bool:
        name = broker.topics.name_of(one)
        return name is None or describes(context, name)

    allowed, refused = split(topics, may)
    return tuple(allowed), refused


def _shown(broker: Any, context: Context, topics: Any) -> list[dict[str, Any]]:
    """Of an answer about all topics, those that may be seen."""
    found = []
    for one in topics:
        name = one["name"] if "name" in one else broker.topics.topic_name(one["topic_id"])
        if name is None or describes(context, name):
            found.append(one)
    return found


def _unfetched(topic: Any, error: ErrorCode) -> dict[str, Any]:
    nothing = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": error}
    return {**named(topic), "partitions": [{"partition_index": one, **nothing} for one in topic.partition_indexes]}


async def _find_coordinator(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    resource = _COORDINATED.get(request.key_type)

    def may(key: str) -> bool:
        return resource is None or context.peer.may(Operation.DESCRIBE, resource, key)

    refused = REFUSED.get(resource or Resource.GROUP)
    nowhere = {"error_code": refused, "error_message": FAILED, "node_id": -1, "host": "", "port": -1}
    asked, answered = "coordinator_keys", "coordinators"
    return await some(handle, broker, context, request, asked, answered, may, lambda key: {"key": key, **nowhere})


async def _list_groups(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    reply = await handle(broker, context, request)
    if context.peer.may_in_cluster(Operation.DESCRIBE):
        return reply
    may = context.peer.may
    groups = [one for one in reply.values["groups"] if may(Operation.DESCRIBE, Resource.GROUP, one["group_id"])]
    return changed(reply, groups=groups)


def _describe(asked: str, extra: dict[str, Any]) -> Guard:
    async def guard(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
        def may(group_id: str) -> bool:
            return context.peer.may(Operation.DESCRIBE, Resource.GROUP, group_id)

        def refusal(group_id: str) -> dict[str, Any]:
            return {"group_id": group_id, "error_code": _REFUSED, **extra}

        reply = await some(handle, broker, context, request, asked, "groups", may, refusal)
        return changed(reply, groups=[_known_operations(context, one) for one in reply.values["groups"]])

    return guard


def _known_operations(context: Context, group: dict[str, Any]) -> dict[str, Any]:
    if "authorized_operations" not in group:
        return group
    known = operations(context, Resource.GROUP, group["group_id"], group["authorized_operations"])
    return {**group, "authorized_operations": known}


_describe_consumer_groups = _describe("group_ids", {"error_message": FAILED})


async def _consumer_group_describe(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    reply = await _describe_consumer_groups(handle, broker, context, request)
    return changed(reply, groups=[_without_hidden_topics(context, one) for one in reply.values["groups"]])


def _without_hidden_topics(context: Context, group: dict[str, Any]) -> dict[str, Any]:
    names = {
        topic["topic_name"]
        for member in group.get("members", ())
        for kind in ("assignment", "target_assignment")
        for topic in member[kind]["topic_partitions"]
    } | {name for member in group.get("members", ()) for name in member["subscribed_topic_names"]}
    if all(describes(context, name) for name in names):
        return group
    message = "The group has described topic(s) that the client is not authorized to describe."
    return {"group_id": group["group_id"], "error_code": _NO_TOPIC, "error_message": message}


async def _consumer_group_heartbeat(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if not context.peer.may(Operation.READ, Resource.GROUP, request.group_id):
        return context.reply(error_code=_REFUSED, error_message=FAILED, heartbeat_interval=0)
    if not all(describes(context, name) for name in request.subscribed_topic_names or ()):
        return context.reply(error_code=_NO_TOPIC, error_message=FAILED, heartbeat_interval=0)
    return await handle(broker, context, request)


async def _offset_delete(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if not context.peer.may(Operation.DELETE, Resource.GROUP, request.group_id):
        return context.reply(error_code=_REFUSED, topics=())
    return await some(
        handle,
        broker,
        context,
        request,
        "topics",
        "topics",
        lambda one: may_read(broker, context, one),
        lambda one: refused_commit(one, _NO_TOPIC),
    )


def _member(**refusal: Any) -> Guard:
    return whole(Operation.READ, Resource.GROUP, "group_id", **refusal)


async def _join_group(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if context.peer.may(Operation.READ, Resource.GROUP, request.group_id):
        return await handle(broker, context, request)
    nothing = None if context.version >= 7 else ""
    return context.reply(
        error_code=_REFUSED, generation_id=-1, protocol_name=nothing, leader="", member_id="", members=()
    )


GUARDS: dict[int, Guard] = {
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _member(),
    13: _member(),
    14: _member(assignment=b""),
    15: _describe("groups", {"group_state": "", "error_message": FAILED}),
    16: _list_groups,
    42: each(
        Operation.DELETE,
        Resource.GROUP,
        "groups_names",
        "results",
        str,
        lambda name: {"group_id": name, "error_code": _REFUSED},
    ),
    47: _offset_delete,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
}
