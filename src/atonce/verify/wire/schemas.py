"""kio's nested message types by name: they live in one module per API and version."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from kio.index import load_request_schema

from atonce.verify.wire.decode import API_KEYS


@lru_cache(maxsize=256)
def nested(api: str, version: int, name: str) -> Any:
    return getattr(inspect.getmodule(load_request_schema(API_KEYS[api], version)), name)
