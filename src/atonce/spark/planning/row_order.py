"""Whether an upsert without `order_by` can know which row of a key is the last: read from Spark's plan of the query.

`explain`, the start of a pipeline and each batch ask the same question here. It needs no order where a key comes at
most once a batch: behind an aggregation whose groups the key determines, or behind dropDuplicates by columns of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from atonce.errors import UsageError

_ONE_TO_ONE = frozenset(
    [
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "Sort",
        "GlobalLimit",
        "LocalLimit",
        "EventTimeWatermark",
        "UpdateEventTimeWatermarkColumn",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ResolvedHint",
        "WriteToMicroBatchDataSourceV1",
        "WriteToMicroBatchDataSource",
    ]
)
"""Give each row of their input once, or not at all."""
_SHUFFLES = frozenset(
    [
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Sort",
        "GlobalLimit",
        "RepartitionByExpression",
        "RebalancePartitions",
        "Window",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
        "FlatMapGroupsInPandas",
        "FlatMapGroupsInArrow",
        "Distinct",
    ]
)
_WHOLE = ("byte", "short", "integer", "long")
_ONE_TO_ONE_CASTS = frozenset(
    [("binary", "string"), ("date", "string"), *((kind, "string") for kind in _WHOLE)]
    + [(small, large) for n, small in enumerate(_WHOLE) for large in _WHOLE[n + 1 :]]
)
"""Casts that keep different values different: what is grouped by one is grouped by the other."""
_NAMES_ONLY = frozenset(["qualifier", "metadata", "name", "nullable", "nonInheritableMetadataKeys", "explicitMetadata"])

Kind = Literal["once", "kept", "lost"]


@dataclass(frozen=True, slots=True)
class RowOrder:
    """What a plan says of the rows of a key in one batch."""

    kind: Kind
    """once: there is at most one. kept: they come as in the input, unless Spark has more reasons to shuffle. lost."""
    words: str


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    fields: dict[str, Any]
    children: tuple[_Node, ...]


_Tree = tuple[Any, ...]
"""An expression without its names: (class, what tells it apart, children …)."""


def of_stream(df: Any, keys: Sequence[str]) -> RowOrder:
    """Of a streaming DataFrame that has not been started."""
    analyzed = df._jdf.queryExecution().analyzed()
    # The optimizer by itself: a streaming query that is not started must not be asked for its own optimized plan.
    optimizer = df.sparkSession._jsparkSession.sessionState().optimizer()
    return _judged(_tree(json.loads(optimizer.execute(analyzed).toJSON())), keys)


def of_batch(df: Any, keys: Sequence[str]) -> RowOrder:
    """Of a micro-batch as `foreachBatch` gets it: there the query's own plan is no longer part of the DataFrame."""
    plan = _tree(json.loads(df._jdf.queryExecution().optimizedPlan().toJSON()))
    return _judged(plan, keys, _plan_of_query(df.sparkSession))


def refuse_without_order(keys: Sequence[str], table: str, ordered: bool, df: Any) -> None:
    """`UsageError`, before anything starts, when nothing says which row of a key is the last."""
    reason = why_not(of_stream(df, keys), ordered)
    if reason is not None:
        raise UsageError(refusal(table, reason))


def why_not(found: RowOrder, ordered: bool) -> str | None:
    """Why an upsert without `order_by` is refused; None: it is not. `ordered`: the input has positions that compare."""
    if found.kind == "once":
        return None
    return found.words if found.kind == "lost" else None if ordered else "this source has no order of its own"


def refusal(table: str, reason: str) -> str:
    return (
        f"upsert into {table} needs to know which row of a key is the last, and {reason}. Nothing was delivered. "
        'Next: name the column(s) that say so, e.g. order_by="offset".'
    )


def _judged(plan: _Node, keys: Sequence[str], below: _Node | None = None) -> RowOrder:
    wanted = _attributes(plan, keys)
    if wanted is not None and (found := _once(plan, wanted, below)) is not None:
        return found
    shuffles = next((node.name for node in _nodes(plan, below) if _shuffles(node)), None)
    if shuffles is not None:
        return RowOrder("lost", f"the transform shuffles rows ({shuffles}), so their order in the input is lost")
    return RowOrder(
        "kept",
        "the last in input order wins, so all rows of a key must come from one input partition: two have no order "
        "between them (order_by= gives them one)",
    )


def _once(node: _Node, wanted: list[_Tree], below: _Node | None) -> RowOrder | None:
    """Follow the key's columns down to what makes them unique within a batch."""
    if node.name == "LogicalRDD" and below is not None:
        above, inside = _outputs(node), _outputs(below)
        # The optimizer has given the query's columns other numbers; they are still in their places.
        same = {_id(a): _reference(b) for a, b in zip(above, inside, strict=False)}
        return _once(below, [_substituted(each, same) for each in wanted], None) if len(above) == len(inside) else None
    if node.name == "Aggregate":
        wanted = [_substituted(each, _definitions(node.fields["aggregateExpressions"])) for each in wanted]
        groups = [_expression(_tree(each)) for each in node.fields["groupingExpressions"]]
        windowed = any("PreciseTimestampConversion" in json.dumps(child.fields) for child in _nodes(node, None))
        if all(_determined(group, wanted, windowed) for group in groups):
            return RowOrder(
                "once", "a key comes at most once a batch (the transform groups by it): the latest batch wins"
            )
        return None
    if node.name in ("Deduplicate", "DeduplicateWithinWatermark"):
        if all(_expression(_tree(each)) in wanted for each in node.fields["keys"]):
            return RowOrder("once", "a key comes at most once a batch (dropDuplicates): the latest batch wins")
        return None
    if node.name not in _ONE_TO_ONE or len(node.children) != 1:
        return None
    if node.name == "Project":
        wanted = [_substituted(each, _definitions(node.fields["projectList"])) for each in wanted]
    return _once(node.children[0], wanted, below)


def _determined(group: _Tree, wanted: list[_Tree], windowed: bool) -> bool:
    """Whether equal keys mean equal groups: the group is part of the key, or the start or end of its time window is."""
    if group in wanted:
        return True
    if group[0] != "AttributeReference" or group[2] != ("start", "end"):
        return False
    parts = {each[1] for each in wanted if each[0] == "GetStructField" and each[2:] == (group,)}
    return bool(parts) if windowed else parts == {0, 1}


def _shuffles(node: _Node) -> bool:
    if node.name == "Join":
        return all(any(_is_stream(each) for each in _nodes(child, None)) for child in node.children)
    if node.name == "Repartition":
        return bool(node.fields.get("shuffle", True))
    if node.name == "Sort":
        return bool(node.fields.get("global", True))
    return node.name in _SHUFFLES


def _is_stream(node: _Node) -> bool:
    return node.name.startswith("Streaming")


def _nodes(node: _Node, below: _Node | None) -> Iterator[_Node]:
    if node.name == "LogicalRDD" and below is not None:
        yield from _nodes(below, None)
        return
    yield node
    for child in node.children:
        yield from _nodes(child, below)


def _attributes(plan: _Node, keys: Sequence[str]) -> list[_Tree] | None:
    """The key's columns in what the plan gives; None where that cannot be told."""
    found = {str(tree.fields.get("name")): _reference(tree) for tree in _outputs(plan)}
    return [found[key] for key in keys] if all(key in found for key in keys) else None


def _outputs(plan: _Node) -> list[_Node]:
    """The columns that a plan gives, each an attribute or a named expression; none where that cannot be told."""
    node = plan
    while node.name != "Project" and node.name != "Aggregate" and len(node.children) == 1:
        node = node.children[0]
    lists = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
    outputs = node.fields.get(lists.get(node.name, "output"))
    return [_tree(each) for each in outputs] if isinstance(outputs, list) else []


def _definitions(outputs: list[Any]) -> dict[int, _Tree]:
    """Attribute → what it stands for, of those that have a name given to an expression."""
    trees = [_tree(each) for each in outputs]
    return {_id(tree): _expression(tree.children[0]) for tree in trees if tree.name == "Alias"}


def _substituted(tree: _Tree, definitions: dict[int, _Tree]) -> _Tree:
    if tree[0] == "AttributeReference":
        return definitions.get(tree[1], tree)
    return (*tree[:2], *(_substituted(child, definitions) for child in tree[2:]))


def _expression(node: _Node) -> _Tree:
    if node.name == "AttributeReference":
        return _reference(node)
    if node.name == "Alias":
        return _expression(node.children[0])
    if node.name == "Cast" and _keeps_values_apart(node):
        return _expression(node.children[0])
    if node.name == "GetStructField":
        return ("GetStructField", node.fields.get("ordinal"), *(_expression(child) for child in node.children))
    fields = {k: v for k, v in node.fields.items() if k not in _NAMES_ONLY and k not in ("class", "exprId")}
    return (node.name, json.dumps(fields, sort_keys=True), *(_expression(child) for child in node.children))


def _keeps_values_apart(cast: _Node) -> bool:
    kinds = [node.fields.get("dataType") for node in (cast.children[0], cast)]
    return cast.children[0].name == "AttributeReference" and tuple(map(str, kinds)) in _ONE_TO_ONE_CASTS


def _reference(node: _Node) -> _Tree:
    kind = node.fields.get("dataType")
    parts = kind.get("fields", []) if isinstance(kind, dict) else []
    names = tuple(part["name"] for part in parts if part.get("type") in ("timestamp", "timestamp_ntz"))
    return ("AttributeReference", _id(node), names)


def _id(node: _Node) -> int:
    return int(node.fields["exprId"]["id"])


def _tree(flat: list[dict[str, Any]]) -> _Node:
    """Spark writes a tree as a list: every node, then its children, each with how many it has."""
    return _next(iter(flat))


def _next(flat: Iterator[dict[str, Any]]) -> _Node:
    fields = next(flat)
    children = tuple(_next(flat) for _ in range(fields["num-children"]))
    return _Node(str(fields["class"]).rpartition(".")[2], fields, children)


def _plan_of_query(spark: Any) -> _Node | None:
    """The plan of the streaming query that calls us. Its DataFrame belongs to a clone that lists no queries."""
    from pyspark.sql import SparkSession

    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    for session in (SparkSession._instantiatedSession, spark) if query_id else ():
        for query in session.streams.active if session is not None else []:
            if query.id == query_id:
                return _tree(json.loads(query._jsq.streamingQuery().lastExecution().optimizedPlan().toJSON()))
    return None
