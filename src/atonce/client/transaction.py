"""One Kafka transaction at a time, owned by the driver and written by many tasks (transaction protocol v2)."""

from __future__ import annotations

from collections.abc import Mapping

from atonce.client.cluster import Cluster
from atonce.client.offsets import Committed, TopicPartition


class Transaction:
    producer_id: int
    epoch: int

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None: ...
    def init(self) -> None: ...
    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None: ...
    def end(self, commit: bool) -> None: ...
    def wait_complete(self, timeout_ms: int = 60_000) -> None: ...
