"""Answers given in the broker's name: a Produce that failed, while later ones succeed (F17), or a full disk (F12)."""

from __future__ import annotations

import inspect
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64

from atonce.errors import InvariantError
from atonce.verify.wire import Request


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
