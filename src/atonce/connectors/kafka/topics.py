"""The output's topics: found, created when missing, and the limits that their cluster sets."""

from __future__ import annotations

import time
from typing import Any

from atonce.client.answers import only
from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.retry import retry
from atonce.connectors.kafka.write.blobs import TimeLimits
from atonce.errors import UsageError

_TOPIC, _BROKER = 2, 4
"""Kafka's resource types in DescribeConfigs."""
_CREATE_TIMEOUT_MS = 30_000
DEFAULT_PARTITIONS = 4


def create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Create a topic with the cluster's default replication; returns when its partitions have leaders."""
    from atonce.client.operate import admin

    admin.create_topic(cluster, name, partitions, exists_ok=True)
    deadline = time.monotonic() + _CREATE_TIMEOUT_MS / 1000
    while True:
        found = cluster.topic(name, refresh=True)
        if found is not None and found.partitions and all(p.leader >= 0 for p in found.partitions):
            return
        if time.monotonic() > deadline:
            raise UsageError(f"topic {name!r} was created but has no leaders after {_CREATE_TIMEOUT_MS / 1000:g} s")
        time.sleep(0.05)


def topic_config(cluster: Cluster, name: str, key: str, default: int) -> int:
    return _config(cluster, _TOPIC, name, key, default)


def broker_config(cluster: Cluster, key: str, default: int) -> int:
    from kafka.protocol.metadata import MetadataRequest

    def ask() -> list[Any]:
        nodes = cluster.call(MetadataRequest[9](topics=[], allow_auto_topic_creation=False)).brokers
        only(nodes, "asking for the brokers")
        return list(nodes)

    nodes = retry(ask, limit_ms=DEFAULT_TIMEOUT_MS)
    return min(_config(cluster, _BROKER, str(node.node_id), key, default, node.node_id) for node in nodes)


def time_limits(cluster: Cluster, name: str) -> TimeLimits:
    """How far from now a record's timestamp may be; no matter how far where the broker sets its own."""
    keys = ("message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    found = _configs(cluster, _TOPIC, name, list(keys))
    if found.get(keys[0]) == "LogAppendTime":
        return TimeLimits()
    without = TimeLimits()
    return TimeLimits(
        before_ms=int(found.get(keys[1], without.before_ms)), after_ms=int(found.get(keys[2], without.after_ms))
    )


def _config(cluster: Cluster, kind: int, name: str, key: str, default: int, node: int | None = None) -> int:
    return int(_configs(cluster, kind, name, [key], node).get(key, default))


def _configs(cluster: Cluster, kind: int, name: str, keys: list[str], node: int | None = None) -> dict[str, str]:
    from kafka.protocol.admin import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )

    def ask() -> Any:
        request = DescribeConfigsRequest[2](resources=[resource], include_synonyms=False)
        return only(cluster.call(request, node=node).results, f"asking for {', '.join(keys)} of {name}")

    found = retry(ask, limit_ms=DEFAULT_TIMEOUT_MS).configs or []
    return {entry.name: entry.value for entry in found if entry.name in keys and entry.value is not None}
