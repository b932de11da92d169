"""A Kafka cluster as Spark's driver and tasks see it: its topics, its coordinators, and calls to its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

DEFAULT_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    index: int
    leader: int
    """Node id; -1 while an election runs."""
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    id: str
    """Kafka's topic id as text; another one after the topic was deleted and made again."""
    partitions: tuple[Partition, ...]
    """In order of their index."""


class Cluster:
    """Connected when constructed. Thread-safe. Tasks share one per process: `shared(servers, config)`."""

    def __init__(self, servers: str, config: Mapping[str, str] | None = None, *, connect_timeout_ms: int = 5_000) -> None: ...
    @property
    def broker_version(self) -> str: ...
    def call(self, request: Any, node: int | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any: ...
    def coordinator(self, key: str, kind: Literal["group", "transaction"] = "group") -> int: ...
    def topic(self, name: str, *, refresh: bool = False) -> Topic | None: ...
    def topics(self, pattern: str | None = None) -> dict[str, Topic]: ...
    def features(self) -> dict[str, int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Cluster: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
