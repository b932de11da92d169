"""DescribeConfigs: key 32, versions 1-4. Topics and this broker, with the places that a value could have come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from atonce.broker.alter import BROKER_RESOURCE, ConfigRefused, find_resource
from atonce.broker.config import BROKER, TOPIC, Kind, Setting, is_shown, text_of
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.pace import paced
from atonce.broker.settings import InForce

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 32
MIN_VERSION = 1
MAX_VERSION = 4


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    results = []
    resources = {(one.resource_type, one.resource_name): one for one in request.resources}
    async for resource in paced(resources.values()):
        answer: dict[str, Any] = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            found = _in_force(broker, resource)
        except ConfigRefused as error:
            results.append({**answer, "error_code": error.code, "error_message": str(error)})
            continue
        names = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
        shown = [
            _shown(one, resource.resource_type, request) for one in found if names is None or one.setting.name in names
        ]
        results.append({**answer, "error_code": ErrorCode.none, "configs": shown})
    return context.reply(results=results)


def _in_force(broker: BrokerState, resource: Any) -> Iterable[InForce]:
    topic = find_resource(broker, resource.resource_type, resource.resource_name)
    if topic is not None:
        shown = [setting.name for setting in TOPIC if is_shown(setting, topic.overrides)]
        return [broker.settings.describe_topic(name, topic.overrides) for name in shown]
    if resource.resource_name == "":
        # The cluster's defaults: only what was set while running.
        return [broker.settings.describe(name) for name in broker.settings.dynamic]
    return [broker.settings.describe(setting.name) for setting in BROKER if is_shown(setting, ())]


def _shown(one: InForce, resource_type: int, request: Any) -> dict[str, Any]:
    setting: Setting = one.setting
    secret = setting.kind is Kind.PASSWORD
    synonyms = [
        {"name": name, "value": None if secret else text_of(value), "source": int(source)}
        for name, value, source in one.synonyms
    ]
    return {
        "name": setting.name,
        "value": None if secret else text_of(one.value),
        "read_only": resource_type == BROKER_RESOURCE and not setting.dynamic,
        "config_source": int(one.source),
        "is_sensitive": secret,
        "synonyms": synonyms if request.include_synonyms else [],
        "config_type": setting.kind.value,
        "documentation": setting.doc if request.include_documentation else None,
    }
