"""Which file answers which request: the handlers folder is the list of APIs, and ApiVersions advertises exactly it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from atonce.broker import handlers
from atonce.broker.messages import known_versions
from atonce.errors import InvariantError

Handle = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    api_key: int
    min_version: int
    max_version: int
    advertised_min_version: int
    handle: Handle
    # A handler that parses its own body (Produce: the records must not be copied) defines `parse`.
    parse: Callable[[int, bytes | bytearray, int], Any] | None


@cache
def routes() -> dict[int, Route]:
    """By API key."""
    found: dict[int, Route] = {}
    for info in pkgutil.iter_modules(handlers.__path__):
        module: Any = importlib.import_module(f"{handlers.__name__}.{info.name}")
        route = Route(
            info.name,
            module.API_KEY,
            module.MIN_VERSION,
            module.MAX_VERSION,
            getattr(module, "ADVERTISED_MIN_VERSION", module.MIN_VERSION),
            module.handle,
            getattr(module, "parse", None),
        )
        if route.api_key in found:
            raise InvariantError(f"two handlers for API {route.api_key}: {found[route.api_key].name}, {route.name}")
        versions = known_versions(route.api_key)
        if route.min_version not in versions or route.max_version not in versions:
            raise InvariantError(f"{route.name}: no schema for versions {route.min_version} to {route.max_version}")
        found[route.api_key] = route
    return dict(sorted(found.items()))
