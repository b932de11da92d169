"""Offsets: where a partition begins and ends, and how far a group has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from atonce.client.cluster import Cluster

LATEST = -1
EARLIEST = -2


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def list_offsets(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: str = "read_committed") -> dict[TopicPartition, int]: ...
def committed(cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, require_stable: bool = True) -> dict[TopicPartition, Committed]: ...
def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed]) -> None: ...
