"""What concerns the cluster as a whole: its users, its ACLs, its disks."""

from __future__ import annotations

from typing import Any

from atonce.broker.access.guard import Guard, Handle, changed, in_cluster
from atonce.broker.access.topics import cluster_operations
from atonce.broker.acls import Operation
from atonce.broker.context import Context
from atonce.broker.describe import NOT_ASKED
from atonce.broker.messages import ErrorCode

_REFUSAL = {"error_code": ErrorCode.cluster_authorization_failed, "error_message": "Cluster authorization failed."}


async def _describe_cluster(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    reply = await handle(broker, context, request)
    known = reply.values.get("cluster_authorized_operations", NOT_ASKED)
    if known == NOT_ASKED:
        return reply
    return changed(reply, cluster_authorized_operations=cluster_operations(context, known))


async def _alter_users(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if context.peer.may_in_cluster(Operation.ALTER):
        return await handle(broker, context, request)
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return context.reply(results=[{"user": name, **_REFUSAL} for name in names])


async def _create_acls(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if context.peer.may_in_cluster(Operation.ALTER):
        return await handle(broker, context, request)
    return context.reply(results=[_REFUSAL for _ in request.creations])


async def _delete_acls(handle: Handle, broker: Any, context: Context, request: Any) -> Any:
    if context.peer.may_in_cluster(Operation.ALTER):
        return await handle(broker, context, request)
    return context.reply(filter_results=[_REFUSAL for _ in request.filters])


GUARDS: dict[int, Guard] = {
    29: in_cluster(Operation.DESCRIBE, error_message=_REFUSAL["error_message"]),
    30: _create_acls,
    31: _delete_acls,
    35: in_cluster(Operation.DESCRIBE),
    46: in_cluster(Operation.DESCRIBE, error_message=_REFUSAL["error_message"]),
    50: in_cluster(Operation.DESCRIBE, error_message=_REFUSAL["error_message"], results=[_REFUSAL]),
    51: _alter_users,
    60: _describe_cluster,
}
