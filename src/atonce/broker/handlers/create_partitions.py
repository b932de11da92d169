"""CreatePartitions: key 37, versions 0-3. Topics only grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context
from atonce.broker.handlers.create_topics import check_assignment, check_partitions
from atonce.broker.messages import ErrorCode
from atonce.broker.topics import TopicRefused

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 37
MIN_VERSION = 0
MAX_VERSION = 3


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    results = []
    for wanted in request.topics:
        error, message = ErrorCode.none, None
        try:
            await _grow(broker, wanted, validate_only=bool(request.validate_only))
        except TopicRefused as refused:
            error, message = refused.code, str(refused)
        except OSError as failed:
            error, message = ErrorCode.kafka_storage_error, str(failed)
        results.append({"name": str(wanted.name), "error_code": error, "error_message": message})
    return context.reply(results=results)


async def _grow(broker: BrokerState, wanted: Any, *, validate_only: bool) -> None:
    topic = broker.topics.get(str(wanted.name))
    if topic is None:
        raise TopicRefused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
    have = len(topic.partitions)
    if topic.is_internal:
        raise TopicRefused(ErrorCode.invalid_request, f"{topic.name} has one partition, for the one coordinator.")
    if wanted.count <= have:
        raise TopicRefused(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {have} partition(s); {wanted.count} would not be an increase.",
        )
    more = check_partitions(wanted.count) - have
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            raise TopicRefused(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {more} additional partition(s), but {len(wanted.assignments)} assignment(s) given.",
            )
        for one in wanted.assignments:
            check_assignment(broker, list(one.broker_ids))
    if not validate_only:
        await broker.topics.add_partitions(topic, have + more)
