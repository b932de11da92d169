"""DeleteTopics: key 20, versions 1-6.

By name, or by id from version 6 on, never by both. A name or an id that is there twice, or a name and the id of the
same topic, are refused: nobody knows what was meant. Groups forget the offsets of the topic.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.topics import Topic, TopicRefused
from atonce.coordinator.decision import StorageFailed

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 20
MIN_VERSION = 1
MAX_VERSION = 6

_NAMED_BY_BOTH = TopicRefused(
    ErrorCode.invalid_request, "The provided topic name maps to an ID that was already supplied."
)

# What a request names: a topic's name, or its id.
Named = tuple[str | None, UUID | None]


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    named: list[Named] = [(None if one.name is None else str(one.name), one.topic_id) for one in request.topics]
    answers: dict[Named, dict[str, Any]] = {}
    topics: dict[Named, Topic] = {}
    counts = Counter(named)
    for one in counts:
        try:
            topics[one] = _find(broker, context, one, counts[one])
        except TopicRefused as refused:
            answers[one] = _answer(*one, refused)
    for one, topic in list(topics.items()):
        by_id: Named = (None, topic.topic_id)
        if one != by_id and by_id in topics:
            del topics[one], topics[by_id]
            answers[one] = _answer(topic.name, topic.topic_id, _NAMED_BY_BOTH)
    done = await broker.topics.delete_many(list(topics.values()))
    for one, topic in topics.items():
        answers[one] = _answer(topic.name, topic.topic_id, done[topic.topic_id])
    deleted = [topic.name for topic in topics.values() if done[topic.topic_id] is None]
    if deleted:
        try:
            await broker.coordination.topics_deleted(deleted)
        except StorageFailed:
            # The offsets then expire with their groups; the topics are gone all the same.
            pass
    return context.reply(responses=list(answers.values()))


def _find(broker: BrokerState, context: Context, named: Named, times: int) -> Topic:
    if not broker.settings.flag("delete.topic.enable"):
        code = ErrorCode.topic_deletion_disabled if context.version >= 3 else ErrorCode.invalid_request
        raise TopicRefused(code, "Topic deletion is disabled.")
    name, topic_id = named
    if name is None and topic_id is None:
        raise TopicRefused(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        raise TopicRefused(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if times > 1:
        what = "topic id" if name is None else "topic name"
        raise TopicRefused(ErrorCode.invalid_request, f"Duplicate {what}.")
    topic = broker.topics.by_id(topic_id) if name is None else broker.topics.get(name)
    if topic is None:
        if name is None:
            raise TopicRefused(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        missing = "This server does not host this topic-partition."
        raise TopicRefused(ErrorCode.unknown_topic_or_partition, missing)
    if topic.is_internal:
        raise TopicRefused(
            ErrorCode.invalid_request, f"{topic.name} is the journal of this broker and cannot be deleted."
        )
    return topic


def _answer(name: str | None, topic_id: UUID | None, error: TopicRefused | OSError | None) -> dict[str, Any]:
    code = ErrorCode.none
    if error is not None:
        code = error.code if isinstance(error, TopicRefused) else ErrorCode.kafka_storage_error
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": code,
        "error_message": None if error is None else str(error),
    }
