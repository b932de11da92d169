"""Reading a range of one partition as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atonce.client.cluster import Cluster


def fetch(cluster: Cluster, topic: str, partition: int, start: int, end: int, *, isolation: str = "read_committed", headers: bool = False, max_bytes: int = 4 << 20, timeout_ms: int = 60_000) -> Iterator[Any]: ...
