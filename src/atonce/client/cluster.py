"""A Kafka cluster as Spark's driver and tasks see it: its topics, its coordinators, and calls to its nodes."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from atonce.client.answers import left_out, only
from atonce.client.config import Properties
from atonce.client.errors import COORDINATOR_MOVED, MISSING, Code, KafkaCode, TopicMissing, error_for, raise_for
from atonce.client.net import Connections
from atonce.client.retry import retry
from atonce.client.wire import Wire
from atonce.errors import AtOnceError, UsageError

DEFAULT_TIMEOUT_MS = 30_000
NO_ID = "00000000-0000-0000-0000-000000000000"
"""The id of a topic on a cluster that gives none."""
CONNECT_TIMEOUT_MS = 5_000
IDLE_WIRES = 8


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
    """Connected when constructed (`UnreachableError` otherwise). Thread-safe. Tasks use `shared`."""

    def __init__(
        self, servers: str, config: Mapping[str, str] | None = None, *, connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    ) -> None:
        self.servers = servers
        self.config = Properties(config or {})
        self._connections = Connections(servers, self.config, connect_timeout_ms)
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[str, str], int] = {}
        self._idle: list[Wire] = []
        self._features: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"Cluster({self.servers!r})"

    @property
    def broker_version(self) -> str:
        """As the broker's API versions tell, e.g. "4.3"."""
        return self._connections.broker_version

    @property
    def max_batch_bytes(self) -> int:
        """What one record batch may have here, beside what topics say: limits of a service (`client.profiles`)."""
        return self._connections.profile.max_batch_bytes

    @property
    def nodes(self) -> dict[int, tuple[str, int]]:
        """Node id → (host, port), as last heard."""
        return self._connections.nodes()

    def max_version(self, request_class: Any) -> int:
        return self._connections.max_version(request_class)

    def call(self, request: Any, node: int | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Send one request of `kafka.protocol` and return its response; error codes in it are the caller's matter.

        One attempt. `ConnectionLost`: the request may or may not have been carried out.
        """
        return self._connections.call(request, node, timeout_ms)

    def coordinator(
        self, key: str, kind: Literal["group", "transaction"] = "group", *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> int:
        """The node that coordinates a group or a transactional id; remembered until `forget_coordinator`."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known

        def find() -> int:
            request = FindCoordinatorRequest(
                key=key,
                key_type=1 if kind == "transaction" else 0,
                coordinator_keys=[key],
                min_version=4,
            )
            what = f"finding the coordinator of {kind} {key!r}"
            answer = self.call(request, timeout_ms=timeout_ms)
            found = only(answer.coordinators, what)
            raise_for(found.error_code, what)
            if found.node_id < 0:
                raise left_out(f"{what}: its node")
            return int(found.node_id)

        node = retry(find, limit_ms=timeout_ms)
        self._coordinators[kind, key] = node
        return node

    def ask_coordinator(
        self,
        request: Any,
        key: str,
        kind: Literal["group", "transaction"] = "group",
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Any:
        """One attempt at the coordinator; when that fails or has moved, the next attempt looks for it anew."""
        try:
            return self.call(request, self.coordinator(key, kind, timeout_ms=timeout_ms), timeout_ms)
        except AtOnceError:
            self.forget_coordinator(key, kind)
            raise

    def forget_coordinator(self, key: str, kind: Literal["group", "transaction"], error: Any = None) -> None:
        """Without an `error`, or with one that says that the coordinator is elsewhere."""
        if error is None or getattr(error, "code", Code.NONE) in COORDINATOR_MOVED:
            self._coordinators.pop((kind, key), None)

    def topic(self, name: str, *, refresh: bool = False) -> Topic | None:
        """None when there is no such topic. Remembered; `refresh` asks again."""
        if not refresh and name in self._topics:
            return self._topics[name]
        found = self._describe([name], limit_ms=DEFAULT_TIMEOUT_MS)
        if name not in found:
            self._topics.pop(name, None)
            return None
        self._topics[name] = found[name]
        return found[name]

    def topics(self, pattern: str | None = None) -> dict[str, Topic]:
        """All topics but Kafka's internal ones, or those whose whole name matches (asked anew each time)."""
        wanted = _compiled(pattern) if pattern is not None else None
        found = self._describe(None, limit_ms=DEFAULT_TIMEOUT_MS)
        return {name: topic for name, topic in sorted(found.items()) if wanted is None or wanted.fullmatch(name)}

    def _describe(self, names: list[str] | None, *, limit_ms: int) -> dict[str, Topic]:
        def ask() -> dict[str, Topic]:
            wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            answer = self.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
            found = {}
            raise_for(answer.error_code, "looking up topics")
            for name in set(names or ()) - {entry.name for entry in answer.topics}:
                # A topic that is not there is in the answer, with an error that says so.
                raise left_out(f"looking up topic {name!r}")
            for entry in answer.topics:
                if entry.error_code in MISSING or (names is None and entry.is_internal):
                    continue
                raise_for(entry.error_code, f"looking up topic {entry.name!r}")
                found[entry.name] = _topic(entry)
            return found

        return retry(ask, limit_ms=limit_ms)

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the leader. `TryAgain` during an election, `TopicMissing` when there is no such partition."""
        where = f"topic {topic!r} partition {partition}"
        found = self.topic(topic)
        if found is None or partition >= len(found.partitions):
            found = self.topic(topic, refresh=True)
        if found is None or partition >= len(found.partitions):
            raise error_for(Code.UNKNOWN_TOPIC_OR_PARTITION, where)
        if found.partitions[partition].leader < 0:
            self.forget_topic(topic)
            raise error_for(Code.LEADER_NOT_AVAILABLE, where)
        return found.partitions[partition].leader

    def forget_topic(self, name: str) -> None:
        """After a leader has moved: the next look-up asks the cluster."""
        self._topics.pop(name, None)

    def features(self) -> dict[str, int]:
        """Finalized features, e.g. {"transaction.version": 2}."""
        if self._features is None:
            answer = retry(
                lambda: self.call(
                    ApiVersionsRequest(client_software_name="atonce", client_software_version="1", min_version=3)
                ),
                limit_ms=DEFAULT_TIMEOUT_MS,
            )
            raise_for(answer.error_code, f"asking {self.servers} for its features")
            self._features = {entry.name: int(entry.max_version_level) for entry in answer.finalized_features or []}
        return dict(self._features)

    def wire(self, node: int, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Wire:
        """A connection of one's own, for bulk data. Give it back with `release`."""
        with self._lock:
            ready = [wire for wire in self._idle if wire.node == node]
            for wire in ready:
                self._idle.remove(wire)
        for position, wire in enumerate(ready):
            if wire.reusable:
                with self._lock:
                    self._idle.extend(ready[position + 1 :])
                return wire
            wire.close()
        sock, versions = self._connections.open_socket(node, timeout_ms)
        return Wire(sock, versions, node=node, client_id=self._connections.client_id)

    def release(self, wire: Wire) -> None:
        with self._lock:
            if wire.reusable and len(self._idle) < IDLE_WIRES:
                self._idle.append(wire)
                return
        wire.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()
        self._connections.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _topic(entry: Any) -> Topic:
    partitions = tuple(
        Partition(index=p.partition_index, leader=p.leader_id, leader_epoch=p.leader_epoch)
        for p in sorted(entry.partitions, key=lambda p: int(p.partition_index))
    )
    if [each.index for each in partitions] != list(range(len(partitions))) or not partitions:
        raise left_out(f"looking up topic {entry.name!r}: some of its partitions")
    known = NO_ID if entry.topic_id is None else str(entry.topic_id)  # kafka-python reads all zeros as None
    return Topic(name=entry.name, id=known, partitions=partitions)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"topic pattern {pattern!r} is not a regular expression: {error}") from None


_shared: dict[tuple[int, str, tuple[tuple[str, str], ...]], Cluster] = {}
_shared_lock = threading.Lock()


def shared(servers: str, config: Mapping[str, str] | None = None) -> Cluster:
    """One cluster per process and configuration, never closed: a Python worker of Spark runs many tasks."""
    # The process id is part of the key because a forked child must not use its parent's connections.
    key = (os.getpid(), servers, tuple(sorted((config or {}).items())))
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Cluster(servers, config)
        return _shared[key]


__all__ = ["Cluster", "KafkaCode", "Partition", "Topic", "TopicMissing", "shared"]
