"""Settings changed while the broker runs, for both AlterConfigs APIs: they differ in how the new values are found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from atonce.broker.config import BROKER_BY_NAME, TOPIC_BY_NAME, BadSetting, Kind, Value, text_of
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.settings import checked_broker_settings, checked_topic_settings, known_setting
from atonce.broker.topics import Topic, TopicRefused, check_topic_name
from atonce.errors import AtOnceError

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

# The settings as they would stand after a change of this resource (None: the broker), from what the request says.
NewValues = Callable[["BrokerState", Topic | None, Iterable[Any]], Mapping[str, str | None]]


class ConfigRefused(AtOnceError):
    """A resource or a change that there cannot be; `code` is what the client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def alter_each(broker: BrokerState, context: Context, request: Any, new_values: NewValues) -> Any:
    """Each resource is changed, or refused, for itself. The changes of many topics are made durable together."""
    results: list[AtOnceError | OSError | None] = []
    topics: list[tuple[int, Topic, Callable[[], Mapping[str, str | None]]]] = []
    for number, resource in enumerate(request.resources):
        results.append(None)
        try:
            topic = find_resource(broker, resource.resource_type, resource.resource_name)
            if topic is None:
                values = new_values(broker, None, resource.configs)
                await _replace_brokers(broker, values, validate_only=bool(request.validate_only))
            elif request.validate_only:
                checked_topic_settings(new_values(broker, topic, resource.configs))
            else:
                # Asked for when nothing else changes: what another client has just set must not be undone.
                topics.append((number, topic, functools.partial(new_values, broker, topic, resource.configs)))
        except (ConfigRefused, BadSetting, OSError) as error:
            results[number] = error
    altered = await broker.topics.alter_many([(topic, values) for _, topic, values in topics])
    for (number, _, _), result in zip(topics, altered, strict=True):
        results[number] = result
    broker.apply_settings([topic for (_, topic, _), result in zip(topics, altered, strict=True) if result is None])
    return context.reply(
        responses=[
            {
                **_error(result),
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource, result in zip(request.resources, results, strict=True)
        ]
    )


def _error(result: AtOnceError | OSError | None) -> dict[str, Any]:
    if isinstance(result, ConfigRefused | TopicRefused):
        return {"error_code": result.code, "error_message": str(result)}
    if isinstance(result, BadSetting):
        return {"error_code": ErrorCode.invalid_config, "error_message": str(result)}
    if result is not None:
        return {"error_code": ErrorCode.kafka_storage_error, "error_message": str(result)}
    return {"error_code": ErrorCode.none, "error_message": None}


def find_resource(broker: BrokerState, resource_type: int, name: str) -> Topic | None:
    """The topic, or None for this broker."""
    if resource_type == TOPIC_RESOURCE:
        try:
            check_topic_name(name)
        except TopicRefused as error:
            raise ConfigRefused(error.code, str(error)) from error
        topic = broker.topics.get(name)
        if topic is None:
            raise ConfigRefused(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
        return topic
    if resource_type == BROKER_RESOURCE:
        if name not in ("", str(broker.node_id)):
            raise ConfigRefused(
                ErrorCode.invalid_request, f"Unexpected broker id, expected {broker.node_id}, but received {name}"
            )
        return None
    raise ConfigRefused(ErrorCode.invalid_request, f"Settings of resource type {resource_type} are not kept here.")


def changed(broker: BrokerState, topic: Topic | None, changes: Iterable[Any]) -> dict[str, str | None]:
    """The settings as they would stand after an incremental change."""
    values = _current(broker, topic)
    seen: set[str] = set()
    table = TOPIC_BY_NAME if topic is not None else BROKER_BY_NAME
    for change in changes:
        name = change.name
        setting = known_setting(name, table, "topic" if topic is not None else "broker")
        if name in seen:
            raise ConfigRefused(ErrorCode.invalid_request, f"{name} was named twice")
        seen.add(name)
        if change.config_operation == _DELETE:
            values.pop(name, None)
            continue
        if change.config_operation == _SET:
            values[name] = change.value
            continue
        if change.config_operation not in (_APPEND, _SUBTRACT) or setting.kind is not Kind.LIST:
            raise ConfigRefused(
                ErrorCode.invalid_config, f"Can't apply operation {change.config_operation} to config key {name}"
            )
        now = values.get(name) or text_of(_value(broker, topic, name)) or ""
        words = [word for word in now.split(",") if word]
        given = [word for word in (change.value or "").split(",") if word]
        if change.config_operation == _APPEND:
            words += [word for word in given if word not in words]
        else:
            words = [word for word in words if word not in given]
        values[name] = ",".join(words)
    return values


def _current(broker: BrokerState, topic: Topic | None) -> dict[str, str | None]:
    if topic is not None:
        return dict(topic.overrides)
    return {name: text_of(value) for name, value in broker.settings.dynamic.items()}


def _value(broker: BrokerState, topic: Topic | None, name: str) -> Value:
    if topic is not None:
        return broker.settings.topic_value(name, topic.overrides)
    return broker.settings.value(name)


async def _replace_brokers(broker: BrokerState, values: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Check all dynamic settings of the broker, make them durable, put them in force."""
    for name, value in values.items():
        setting = known_setting(name, BROKER_BY_NAME, "broker")
        if not setting.dynamic:
            raise ConfigRefused(
                ErrorCode.invalid_request, f"Cannot update {name} while the broker runs; use --set at its start."
            )
        if value is None:
            raise ConfigRefused(ErrorCode.invalid_config, f"{name}: null is no value")
    typed = checked_broker_settings({name: value for name, value in values.items() if value is not None})
    if not validate_only:
        await broker.topics.keep_broker_settings(typed)
        broker.apply_settings()
