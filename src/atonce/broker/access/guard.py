"""The shapes that guards have: a whole request that is refused, and a list in which some entries are."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from atonce.broker.acls import Operation, Resource
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode, Reply

Handle = Callable[..., Awaitable[Any]]
Guard = Callable[[Handle, Any, Context, Any], Awaitable[Any]]

REFUSED = {
    Resource.TOPIC: ErrorCode.topic_authorization_failed,
    Resource.GROUP: ErrorCode.group_authorization_failed,
    Resource.CLUSTER: ErrorCode.cluster_authorization_failed,
    Resource.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
FAILED = "Authorization failed."


def whole(operation: Operation, resource: Resource, field: str, **refusal: Any) -> Guard:
    """All or nothing, by the resource that `field` of the request names."""

    async def guard(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
        if not context.peer.may(operation, resource, getattr(request, field)):
            return context.reply(error_code=REFUSED[resource], **refusal)
        return await handle(broker, context, request)

    return guard


def in_cluster(operation: Operation, *others: Operation, **refusal: Any) -> Guard:
    """All or nothing, by what is allowed in the cluster: one of these operations."""

    async def guard(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
        if not any(context.peer.may_in_cluster(one) for one in (operation, *others)):
            return context.reply(error_code=ErrorCode.cluster_authorization_failed, **refusal)
        return await handle(broker, context, request)

    return guard


def each(
    operation: Operation,
    resource: Resource,
    asked: str,
    answered: str,
    name: Callable[[Any], str],
    refusal: Callable[[Any], dict[str, Any]],
) -> Guard:
    """Entry by entry: the list `asked` of the request, the list `answered` of the response."""

    async def guard(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
        def may(one: Any) -> bool:
            return context.peer.may(operation, resource, name(one))

        return await some(handle, broker, context, request, asked, answered, may, refusal)

    return guard


async def some(
    handle: Handle,
    broker: Any,
    context: Context,
    request: Any,
    asked: str,
    answered: str,
    may: Callable[[Any], bool],
    refusal: Callable[[Any], dict[str, Any]],
) -> Any:
    """The allowed entries are handled, the others are refused, and both are answered together."""
    allowed, refused = split(getattr(request, asked), may)
    if not refused:
        return await handle(broker, context, request)
    answers = [refusal(one) for one in refused]
    if not allowed:
        return context.reply(**{answered: answers})
    reply = await handle(broker, context, dataclasses.replace(request, **{asked: tuple(allowed)}))
    return changed(reply, **{answered: [*reply.values[answered], *answers]})


def split(items: Iterable[Any], may: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    allowed: list[Any] = []
    refused: list[Any] = []
    for one in items:
        (allowed if may(one) else refused).append(one)
    return allowed, refused


def changed(reply: Reply, **values: Any) -> Reply:
    return Reply(reply.api_key, reply.version, {**reply.values, **values})


def operations(context: Context, resource: Resource, name: str, known: int) -> int:
    """Of a bit set of operations, those that are allowed."""
    return sum(1 << one for one in Operation if known & (1 << one) and context.peer.may(one, resource, name))
