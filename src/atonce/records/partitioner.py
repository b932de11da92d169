"""Which partition a record goes to: Kafka's murmur2 (Java), crc32 (librdkafka), or the user's own column."""

from __future__ import annotations

from typing import Any


def assign(keys: Any, n_partitions: int, *, partitioner: str = "murmur2", position: int = 0, explicit: Any = None) -> Any: ...
