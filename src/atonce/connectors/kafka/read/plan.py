"""Positions as Spark keeps them in a checkpoint: the form of its Kafka connector, and whose positions they are.

A pipeline's plan names the topic ids beside the positions, so that a batch that is called again after its topic was
deleted and made again reads the log that it was planned for, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atonce.client.offsets import TopicPartition
from atonce.delivery.progress import IDS

Offsets = dict[str, dict[str, Any]]
"""{"topic":{"0":12}}, and in pipelines {"@ids":{"topic":"…"}} beside it: no topic can have that name."""


def to_json_form(positions: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None) -> Offsets:
    """Always in the same order: Spark compares offsets as text. `ids` of other topics than these are left out."""
    nested: Offsets = {}
    for tp in sorted(positions):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp]
    if ids is not None:
        nested[IDS] = {topic: ids[topic] for topic in sorted(nested) if topic in ids}
    return nested


def from_json_form(offsets: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(p)): int(at)
        for topic, partitions in offsets.items()
        if topic != IDS
        for p, at in partitions.items()
    }


def ids_in(offsets: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Topic → id, as far as the plan names them."""
    return {topic: str(known) for topic, known in offsets.get(IDS, {}).items()}
