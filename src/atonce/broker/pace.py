"""Long requests on the event loop: they give the others a turn, and answer once what was asked for many times.

Everything a client can name tens of thousands of times in one request goes through one of these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# How long one request keeps the others waiting.
_TURN_S = 0.005


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; every few milliseconds the other connections come first."""
    began = time.perf_counter()
    for item in items:
        if time.perf_counter() - began > _TURN_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
        yield item


def once(items: Iterable[T]) -> Iterator[T]:
    """Each item the first time that it is named: fifty thousand times the same large group is one large answer."""
    return iter(dict.fromkeys(items))


def once_each(topics: Iterable[Any], name: str, indexes: str) -> list[tuple[str, list[Any]]]:
    """(topic, its partitions) of a request, where neither a topic nor one of its partitions is there twice."""
    found: dict[Hashable, dict[Any, None]] = {}
    for topic in topics:
        found.setdefault(str(getattr(topic, name)), {}).update(dict.fromkeys(getattr(topic, indexes)))
    return [(str(topic), list(partitions)) for topic, partitions in found.items()]
