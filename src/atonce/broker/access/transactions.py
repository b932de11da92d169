"""What concerns transactions and producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atonce.broker.access.groups import may_read, refused_commit
from atonce.broker.access.guard import REFUSED, Guard, Handle, changed, some, whole
from atonce.broker.access.topics import describes
from atonce.broker.acls import Operation, Resource
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

_REFUSED = REFUSED[Resource.TRANSACTIONAL_ID]
_NO_TOPIC = REFUSED[Resource.TOPIC]
_NO_GROUP = REFUSED[Resource.GROUP]
_NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1}


async def _init_producer_id(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    peer = context.peer
    if request.transactional_id is not None:
        if not peer.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            return context.reply(error_code=_REFUSED, **_NO_PRODUCER)
    elif not peer.may_in_cluster(Operation.IDEMPOTENT_WRITE) and not peer.may_somewhere(
        Operation.WRITE, Resource.TOPIC
    ):
        return context.reply(error_code=ErrorCode.cluster_authorization_failed, **_NO_PRODUCER)
    return await handle(broker, context, request)


async def _add_partitions(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if context.version >= 4:  # between brokers
        if context.peer.may_in_cluster(Operation.CLUSTER_ACTION):
            return await handle(broker, context, request)
        return context.reply(error_code=ErrorCode.cluster_authorization_failed)
    (transaction,) = request.transactions
    topics = transaction.topics

    def refused(error: Callable[[Any], ErrorCode]) -> Any:
        results = [_not_added(one, error(one)) for one in topics]
        return context.reply(results_by_transaction=[{"topic_results": results}])

    if not context.peer.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, transaction.transactional_id):
        return refused(lambda topic: _REFUSED)
    forbidden = {one.name for one in topics if not context.peer.may(Operation.WRITE, Resource.TOPIC, one.name)}
    if not forbidden:
        return await handle(broker, context, request)
    return refused(lambda topic: _NO_TOPIC if topic.name in forbidden else ErrorCode.operation_not_attempted)


def _not_added(topic: Any, error: ErrorCode) -> dict[str, Any]:
    results = [{"partition_index": index, "partition_error_code": error} for index in topic.partitions]
    return {"name": topic.name, "results_by_partition": results}


async def _add_offsets(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if not context.peer.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return context.reply(error_code=_REFUSED)
    if not context.peer.may(Operation.READ, Resource.GROUP, request.group_id):
        return context.reply(error_code=_NO_GROUP)
    return await handle(broker, context, request)


async def _commit_offsets(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    error = None
    if not context.peer.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        error = _REFUSED
    elif not context.peer.may(Operation.READ, Resource.GROUP, request.group_id):
        error = _NO_GROUP
    if error is not None:
        return context.reply(topics=[refused_commit(one, error) for one in request.topics])
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


async def _write_markers(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if any(context.peer.may_in_cluster(one) for one in (Operation.ALTER, Operation.CLUSTER_ACTION)):
        return await handle(broker, context, request)
    error = ErrorCode.cluster_authorization_failed
    return context.reply(
        markers=[
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": one, "error_code": error} for one in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    )


async def _describe(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    def may(name: str) -> bool:
        return context.peer.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)

    def refusal(name: str) -> dict[str, Any]:
        return {"transactional_id": name, "error_code": _REFUSED, "transaction_start_time": 0}

    asked, answered = "transactional_ids", "transaction_states"
    reply = await some(handle, broker, context, request, asked, answered, may, refusal)
    shown = [
        {**one, "topics": [topic for topic in one["topics"] if describes(context, topic["topic"])]}
        if "topics" in one
        else one
        for one in reply.values[answered]
    ]
    return changed(reply, transaction_states=shown)


async def _list(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    reply = await handle(broker, context, request)
    shown = [
        one
        for one in reply.values.get("transaction_states", ())
        if context.peer.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, one["transactional_id"])
    ]
    return changed(reply, transaction_states=shown)


GUARDS: dict[int, Guard] = {
    22: _init_producer_id,
    24: _add_partitions,
    25: _add_offsets,
    26: whole(Operation.WRITE, Resource.TRANSACTIONAL_ID, "transactional_id", **_NO_PRODUCER),
    27: _write_markers,
    28: _commit_offsets,
    65: _describe,
    66: _list,
}
