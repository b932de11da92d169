"""What keeps a stateful plan from coming out the same when a batch is computed again, read from Spark's plans.

A crash after a batch's commit, and before Spark's own note of it, has its state computed again, into nothing: the rows
are delivered already, and the new state must be the one that belongs to them. Whatever feeds the state must therefore
give the same for the same input. What comes after it, and everything in a plan without state, is computed again only
together with what is delivered. The time of a batch (`current_timestamp()`) stands in its plan, `offsets/N`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from atonce.errors import GuaranteeRefused
from atonce.spark.planning.statefulness import keeps_state, nodes

_FUNCTIONS = re.compile(r"Python\w+|Scala(?:UDF|UDAF|Aggregator)|V2Aggregator|ApplyFunctionExpression|Hive\w+")
_TYPED = frozenset(["MapPartitions", "MapElements", "TypedFilter", "AppendColumns", "MapGroups", "CoGroup"])
_BY_ORDER = frozenset(["First", "Last", "AnyValue", "CollectList", "ListAgg"])
_SUBQUERIES = frozenset(["ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"])
_ONE_SELECT = re.compile(
    r"\s*select\b(?!.*\bselect\b).*\bfrom\s+input(?:\s+where\b.*)?[\s;]*", re.IGNORECASE | re.DOTALL
)
_MORE = re.compile(r"\b(?:group|distinct|limit|having|over|union|intersect|except|minus)\b", re.IGNORECASE)
_CALL = re.compile(r"\b(\w+)\s*\(")
_ON_ROWS = re.compile(
    "(?:try_)?cast|upper|lower|concat|concat_ws|length|coalesce|if|nullif|substring|[lr]?trim|[lr]pad|replace|split|abs"
    "|round|floor|ceil|hash|md5|sha2|get_json_object|(?:from|to)_json|(?:named_)?struct|to_timestamp|to_date|date_format"
    "|and|or|not|in|as|where|select|when|then|else",
    re.IGNORECASE,
)


def surely_stateless(sql: str) -> bool:
    """Whether a look at the text is enough: one SELECT of well-known functions on a row. False proves nothing."""
    plain = _ONE_SELECT.fullmatch(sql) is not None and _MORE.search(sql) is None
    return plain and all(_ON_ROWS.fullmatch(name) for name in _CALL.findall(sql))


def unproven(df: Any) -> list[str]:
    """What feeds the state of this query and may come out otherwise the next time, in words. Empty: nothing does."""
    return of_plan(df._jdf.queryExecution().analyzed(), df.sparkSession)


def of_plan(analyzed: Any, spark: Any) -> list[str]:
    """The same for a plan of the JVM."""
    if not any(keeps_state(node) for node in nodes(analyzed)):
        return []
    # The optimizer may move a condition below the state that it was written behind.
    plans = (analyzed, spark._jsparkSession.sessionState().optimizer().execute(analyzed))
    return list(dict.fromkeys(word for plan in plans for word in _fed(plan, False)))


def refuse_unproven(found: list[str], name: str) -> None:
    """Before anything is made or claimed."""
    if found:
        raise GuaranteeRefused(
            f"effectively-once was asked for, but the state of {name!r} may come out otherwise when a batch is "
            f"computed again after a crash: {'; '.join(found)}. Next: say deterministic: true if the same input always "
            "gives the same, or use guarantee='at-least-once'."
        )


def _fed(node: Any, feeds: bool) -> Iterator[str]:
    """`feeds`: what this node gives goes into a state."""
    if not node.isStreaming():
        return  # a table; it is named where it meets the stream
    state = keeps_state(node)
    if feeds or state:
        if str(node.nodeName()) in _TYPED:
            yield f"Spark cannot look into the function of {node.nodeName()}"
        for expression in _into_state(node) if state and not feeds else _each(node.expressions()):
            yield from _odd(expression)
        children = list(_each(node.children()))
        if any(not child.isStreaming() for child in children) and any(child.isStreaming() for child in children):
            yield f"the table {_table(children)} that the stream is joined with may have changed"
    for child in _each(node.children()):
        yield from _fed(child, feeds or state)


def _into_state(node: Any) -> Iterator[Any]:
    """The expressions of a node with state; of an aggregation not what is only done to its results."""
    if str(node.nodeName()) != "Aggregate":
        yield from _each(node.expressions())
        return
    yield from _each(node.groupingExpressions())
    for expression in _each(node.aggregateExpressions()):
        yield from _aggregated(expression)


def _aggregated(expression: Any) -> Iterator[Any]:
    if _kind(expression) == "AggregateExpression" or _FUNCTIONS.fullmatch(_kind(expression)):
        yield expression
        return
    for child in _each(expression.children()):
        yield from _aggregated(child)


def _odd(expression: Any) -> Iterator[str]:
    kind, children = _kind(expression), list(_each(expression.children()))
    if _FUNCTIONS.fullmatch(kind):
        yield f"Spark cannot look into the function {_name(expression)}"
    elif kind in _BY_ORDER:
        yield f"{expression.prettyName()}() depends on the order in which rows arrive"
    elif kind in _SUBQUERIES:
        yield "a table that a subquery reads may have changed"
    elif not expression.deterministic() and all(child.deterministic() for child in children):
        yield f"{expression.prettyName()}() gives something else every time"
    for child in children:
        yield from _odd(child)


def _name(expression: Any) -> str:
    """A function's own name; of `map_arrow`, which wraps the user's, that word."""
    name = str(expression.sql()).partition("(")[0]
    return "map_arrow" if name == "_Each" else name


def _table(children: list[Any]) -> str:
    static = next(child for child in children if not child.isStreaming())
    named = (node for node in nodes(static) if str(node.nodeName()) == "SubqueryAlias")
    found = next(named, None)
    return repr(str(found.identifier().name())) if found is not None else "of its own"


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(found: Any) -> Iterator[Any]:
    return (found.apply(i) for i in range(found.size()))
