"""Sending encoded record batches: pipelined, in order, with the driver's producer id and epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from atonce.client.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    records: int = 0
    batches: int = 0
    bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1
    failed_records: int = 0
    """Only without retries (at most once): records whose request failed and was not repeated."""


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        producer_id: int = -1,
        epoch: int = -1,
        acks: int = -1,
        retries: bool = True,
        max_in_flight: int = 5,
        timeout_ms: int = 30_000,
        should_stop: Callable[[], bool] | None = None,
    ) -> None: ...
    def send(self, topic: str, partition: int, blob: Any) -> None: ...
    def flush(self) -> dict[tuple[str, int], Sent]: ...
    def close(self) -> None: ...


def idempotent_producer(cluster: Cluster) -> tuple[int, int]: ...
