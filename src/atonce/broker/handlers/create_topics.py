"""CreateTopics: key 19, versions 2-7.

There is one node: a replication factor above 1 is refused as Kafka refuses it, unless `allow.any.replication.factor`.
Names are checked, also against names that differ only in `.` and `_`; settings are checked against the table.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from atonce.broker.config import TOPIC, BadSetting, is_shown, text_of
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import paced
from atonce.broker.settings import checked_topic_settings
from atonce.broker.topics import MAX_PARTITIONS, NewTopic, TopicRefused

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 19
MIN_VERSION = 2
MAX_VERSION = 7


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    named = Counter(str(topic.name) for topic in request.topics)
    answers: dict[str, dict[str, Any]] = {}
    new: list[NewTopic] = []
    async for wanted in paced(request.topics):
        name = str(wanted.name)
        if named[name] > 1:
            # Kafka names it once in its answer.
            answers[name] = _refused(name, ErrorCode.invalid_request, f"Duplicate topic name: {name}")
            continue
        try:
            topic, replicas = _checked(broker, wanted)
        except TopicRefused as error:
            answers[name] = _refused(name, error.code, str(error))
        except BadSetting as error:
            answers[name] = _refused(name, ErrorCode.invalid_config, str(error))
        else:
            new.append(topic)
            answers[name] = _made(broker, topic, replicas)
    if not request.validate_only:
        for name, made in (await broker.topics.create_many(new)).items():
            if isinstance(made, TopicRefused):
                answers[name] = _refused(name, made.code, str(made))
            elif isinstance(made, OSError):
                answers[name] = _refused(name, ErrorCode.kafka_storage_error, str(made))
            else:
                answers[name]["topic_id"] = made.topic_id
    return context.reply(topics=list(answers.values()))


def _checked(broker: BrokerState, wanted: Any) -> tuple[NewTopic, int]:
    """The topic that is asked for, and its replicas."""
    name = str(wanted.name)
    broker.topics.check_new(name)
    count, replicas = _placement(broker, wanted)
    broker.topics.check_room(count)
    return NewTopic(name, count, checked_topic_settings({one.name: one.value for one in wanted.configs})), replicas


def _made(broker: BrokerState, topic: NewTopic, replicas: int) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": None,
        "error_code": ErrorCode.none,
        "num_partitions": topic.partitions,
        "replication_factor": replicas,
        "configs": [_config(broker, setting.name, topic.overrides) for setting in TOPIC if is_shown(setting, ())],
    }


def _placement(broker: BrokerState, wanted: Any) -> tuple[int, int]:
    """Partitions and replicas, from the assignment if one is given."""
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise TopicRefused(
                ErrorCode.invalid_request,
                "A manual partition assignment was specified, but numPartitions or replicationFactor was not -1.",
            )
        indexes = sorted(one.partition_index for one in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise TopicRefused(
                ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence"
            )
        for one in wanted.assignments:
            check_assignment(broker, list(one.broker_ids))
        return check_partitions(len(indexes)), len(wanted.assignments[0].broker_ids)
    count = wanted.num_partitions
    if count == -1:
        count = broker.settings.number("num.partitions")
    replicas = wanted.replication_factor
    if replicas == -1:
        replicas = broker.settings.number("default.replication.factor")
    if count < 1:
        raise TopicRefused(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    if replicas < 1:
        raise TopicRefused(ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0, or -1.")
    if replicas > 1 and not broker.settings.flag("allow.any.replication.factor"):
        raise TopicRefused(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            "be reached because only 1 broker(s) are registered.",
        )
    return check_partitions(count), replicas


def check_partitions(count: int) -> int:
    if count > MAX_PARTITIONS:
        raise TopicRefused(
            ErrorCode.policy_violation, f"Excessively large number of partitions: {count}, at most {MAX_PARTITIONS}."
        )
    return count


def check_assignment(broker: BrokerState, brokers: list[int]) -> None:
    allowed = broker.settings.flag("allow.any.replication.factor")
    if not brokers or (brokers != [broker.node_id] and not allowed):
        raise TopicRefused(
            ErrorCode.invalid_replica_assignment,
            f"The manual partition assignment includes broker {brokers}, but only {broker.node_id} is registered.",
        )


def _refused(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": code,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def _config(broker: BrokerState, name: str, overrides: dict[str, str]) -> dict[str, Any]:
    found = broker.settings.describe_topic(name, overrides)
    return {"name": name, "value": text_of(found.value), "read_only": False, "config_source": int(found.source)}
