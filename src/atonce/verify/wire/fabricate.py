"""Answers given in the broker's name: a Produce that failed, while later ones succeed (F17), or a full disk (F12).

And answers of the broker's own that reach the subject saying less than was asked (F31): `Rule.change` takes one of
the functions at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta, i64

from atonce.errors import InvariantError
from atonce.verify.wire.decode import Request
from atonce.verify.wire.rules import Rule

EARLIEST_LOCAL = -4
"""A timestamp of ListOffsets: where the leader's own disk begins (KIP-405)."""


def failed_response(request: Request, error: int) -> bytes:
    """A ProduceResponse that fails every partition of the request with `error`."""
    body = request.body()
    if request.api != "produce" or body is None:
        raise InvariantError(f"only a Produce that could be read can be failed, not {request.api} v{request.version}")
    schema: Any = load_response_schema(request.api_key, request.version)
    module = inspect.getmodule(schema)
    topic_type: Any = getattr(module, "TopicProduceResponse")  # noqa: B009
    part_type: Any = getattr(module, "PartitionProduceResponse")  # noqa: B009
    by_id = request.version >= 13
    topics = []
    for topic in body.topic_data:
        parts = tuple(
            part_type(
                index=part.index,
                error_code=ErrorCode(error),
                base_offset=i64(-1),
                **({"record_errors": ()} if request.version >= 8 else {}),
            )
            for part in topic.partition_data
        )
        name = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        topics.append(topic_type(partition_responses=parts, **name))
    return request.response_frame(schema(responses=tuple(topics)))


def changed_response(request: Request, rule: Rule, frame: bytes) -> bytes:
    """The broker's answer, as `rule.change` makes it."""
    read = request.response_body(frame)
    if read is None or rule.change is None:
        raise InvariantError(f"the answer to {request.api} v{request.version} cannot be read, so it cannot be changed")
    return request.response_frame(rule.change(request, read[0]))


def empty_fetch(request: Request, body: Any) -> Any:
    """No records in any partition; how far each log goes is told as it is. So answers slow remote storage."""
    return replace(
        body,
        responses=tuple(
            replace(topic, partitions=tuple(replace(part, records=None) for part in topic.partitions))
            for topic in body.responses
        ),
    )


def failed_fetch(error: int) -> Callable[[Request, Any], Any]:
    """Every partition of a Fetch fails with `error`."""

    def change(request: Request, body: Any) -> Any:
        def failed(part: Any) -> Any:
            return replace(part, error_code=ErrorCode(error), records=None)

        return replace(
            body,
            responses=tuple(
                replace(topic, partitions=tuple(map(failed, topic.partitions))) for topic in body.responses
            ),
        )

    return change


def throttled(after_ms: int) -> Callable[[Request, Any], Any]:
    """A Fetch under a quota that is used up: no partition is in the answer, only the time to wait."""

    def change(request: Request, body: Any) -> Any:
        return replace(body, throttle_time=i32Timedelta.parse(timedelta(milliseconds=after_ms)), responses=())

    return change


def in_remote_storage(request: Request, body: Any) -> Any:
    """A ListOffsets whose answer says that nothing of what was asked about is on the leader's own disk."""
    asked: Any = request.body()
    wanted = {
        (topic.name, part.partition_index)
        for topic in (asked.topics if asked is not None else ())
        for part in topic.partitions
        if part.timestamp == EARLIEST_LOCAL
    }

    def moved(topic: Any) -> Any:
        parts = (
            replace(part, offset=i64(2**40)) if (topic.name, part.partition_index) in wanted else part
            for part in topic.partitions
        )
        return replace(topic, partitions=tuple(parts))

    return replace(body, topics=tuple(map(moved, body.topics)))


def without(field: str) -> Callable[[Request, Any], Any]:
    """One list of the answer is empty: fewer topics, partitions, groups or coordinators than were asked for."""

    def change(request: Request, body: Any) -> Any:
        return replace(body, **{field: ()})

    return change
