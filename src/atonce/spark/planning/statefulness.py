"""Whether a streaming DataFrame keeps state between its micro-batches, read from its logical plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ALWAYS = frozenset(
    {
        "Aggregate",
        "Distinct",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
        "GlobalLimit",
        "SessionWindow",
    }
)


def is_stateful(df: Any) -> bool:
    return any(keeps_state(node) for node in nodes(_plan(df)))


def default_mode(df: Any) -> str:
    """Spark's output mode when the user names none: an aggregation tells what changed, everything else appends."""
    return "update" if any(str(n.nodeName()) == "Aggregate" and n.isStreaming() for n in nodes(_plan(df))) else "append"


def _plan(df: Any) -> Any:
    return df._jdf.queryExecution().analyzed()


def keeps_state(node: Any) -> bool:
    """Whether this node of a streaming plan has a state store of its own."""
    if not node.isStreaming():
        return False
    name = str(node.nodeName())
    if name == "Join":
        children = node.children()
        return all(children.apply(i).isStreaming() for i in range(children.size()))
    return name in _ALWAYS


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from nodes(children.apply(i))
