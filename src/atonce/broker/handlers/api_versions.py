"""ApiVersions: key 18, versions 0-4.

Lists what the handlers folder holds, and the features `transaction.version` (2, unless the broker was started with
another) and `group.version` 1. A version that we do not know is answered in version 0 with UNSUPPORTED_VERSION and the
list, so that the client can try again.
"""

from __future__ import annotations

import re
from typing import Any

from atonce.broker.context import Context
from atonce.broker.messages import ErrorCode
from atonce.broker.router import routes

API_KEY = 18
MIN_VERSION = 0
MAX_VERSION = 4

# name: (lowest supported, highest supported, finalized)
FEATURES = {"metadata.version": (7, 30, 30), "transaction.version": (0, 2, 2), "group.version": (0, 1, 1)}

# KIP-511: what a client may call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(broker: Any, context: Context, request: Any) -> Any:
    if context.version >= 3:
        for value in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(value):
                return context.reply(error_code=ErrorCode.invalid_request)
    return answer(context, transactions=broker.settings.number("transaction.version"))


def answer(context: Context, error: ErrorCode = ErrorCode.none, transactions: int = 0) -> Any:
    """`transactions`: the level of `transaction.version`; a feature at level 0 is not listed as finalized."""
    levels = {name: level for name, (_, _, level) in FEATURES.items()} | {"transaction.version": transactions}
    return context.reply(
        error_code=error,
        api_keys=[
            {"api_key": route.api_key, "min_version": route.advertised_min_version, "max_version": route.max_version}
            for route in routes().values()
        ],
        supported_features=[
            # Version 0 of a feature may not be listed before ApiVersions 4: older clients reject it.
            {"name": name, "min_version": low if context.version >= 4 else max(low, 1), "max_version": high}
            for name, (low, high, _) in FEATURES.items()
        ],
        finalized_features_epoch=1,
        finalized_features=[
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in levels.items()
            if level
        ],
    )
