"""IncrementalAlterConfigs: key 44, versions 0-1. Sets, deletes, appends to and subtracts from single settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.alter import ConfigRefused, changed, find_resource, replace
from atonce.broker.config import BadSetting
from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 44
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    responses = []
    for resource in request.resources:
        error, message = ErrorCode.none, None
        try:
            topic = find_resource(broker, resource.resource_type, resource.resource_name)
            values = changed(broker, topic, resource.configs)
            await replace(broker, topic, values, validate_only=bool(request.validate_only))
        except ConfigRefused as refused:
            error, message = refused.code, str(refused)
        except BadSetting as bad:
            error, message = ErrorCode.invalid_config, str(bad)
        except OSError as failed:
            error, message = ErrorCode.kafka_storage_error, str(failed)
        responses.append(
            {
                "error_code": error,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return context.reply(responses=responses)
