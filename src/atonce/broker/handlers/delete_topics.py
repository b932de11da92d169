"""DeleteTopics: key 20, versions 1-6. By name, or by id from version 6 on. Groups forget the offsets of the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.topics import Topic, TopicRefused
from atonce.coordinator.decision import StorageFailed

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    results = []
    deleted: list[str] = []
    if context.version >= 6:
        wanted = [(one.name, one.topic_id) for one in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    for name, topic_id in wanted:
        topic = broker.topics.get(str(name)) if name is not None else broker.topics.by_id(topic_id)
        error, message = ErrorCode.none, None
        try:
            await _delete(broker, topic, by_id=name is None)
        except TopicRefused as refused:
            error, message = refused.code, str(refused)
        except OSError as failed:
            error, message = ErrorCode.kafka_storage_error, str(failed)
        if topic is not None and error is ErrorCode.none:
            deleted.append(topic.name)
        results.append(
            {
                "name": topic.name if topic is not None else name,
                "topic_id": topic.topic_id if topic is not None else topic_id,
                "error_code": error,
                "error_message": message,
            }
        )
    if deleted:
        try:
            await broker.coordination.topics_deleted(deleted)
        except StorageFailed:
            # The offsets then expire with their groups; the topics are gone all the same.
            pass
    return context.reply(responses=results)


async def _delete(broker: BrokerState, topic: Topic | None, *, by_id: bool) -> None:
    if not broker.settings.flag("delete.topic.enable"):
        raise TopicRefused(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
    if topic is None:
        code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        raise TopicRefused(code, "This server does not host this topic ID." if by_id else "No such topic.")
    if topic.is_internal:
        raise TopicRefused(
            ErrorCode.invalid_request, f"{topic.name} is the journal of this broker and cannot be deleted."
        )
    await broker.topics.delete(topic)
