"""Addresses that brokers advertise in their answers, and how they are replaced by the proxy's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kio.static.primitive import i32

from atonce.verify.wire.decode import Request

_CARRIERS = ("brokers", "node_endpoints", "coordinators")


class Addresses:
    """(host, port) of every node that a response body names."""

    def __init__(self, body: Any) -> None:
        self.found: set[tuple[str, int]] = set()
        for entry in _nodes(body):
            if entry.host and int(entry.port) > 0:  # a coordinator that is not available has neither
                self.found.add((entry.host, int(entry.port)))


def _nodes(body: Any) -> list[Any]:
    nodes = [entry for name in _CARRIERS for entry in getattr(body, name, None) or () if hasattr(entry, "host")]
    if hasattr(body, "host"):  # FindCoordinator before version 4
        nodes.append(body)
    return nodes


def rewrite(body: Any, ours: Mapping[tuple[str, int], tuple[str, int]]) -> Any:
    """The same body with every known address replaced."""
    changes: dict[str, Any] = {}
    for name in _CARRIERS:
        entries = getattr(body, name, None)
        if entries and hasattr(entries[0], "host"):
            changes[name] = tuple(_moved(entry, ours) for entry in entries)
    body = dataclasses.replace(body, **changes) if changes else body
    return _moved(body, ours) if hasattr(body, "host") else body


def _moved(entry: Any, ours: Mapping[tuple[str, int], tuple[str, int]]) -> Any:
    target = ours.get((entry.host, int(entry.port)))
    return dataclasses.replace(entry, host=target[0], port=i32(target[1])) if target else entry


def learn_topics(request: Request, body: Any, names: dict[Any, str]) -> None:
    """Topic id → name, from Metadata and CreateTopics answers: newer requests carry ids only."""
    if request.api in ("metadata", "create_topics", "describe_topic_partitions"):
        for topic in body.topics or ():
            topic_id = getattr(topic, "topic_id", None)
            if topic_id is not None and topic.name:
                names[topic_id] = str(topic.name)
