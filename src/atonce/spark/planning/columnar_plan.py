"""Reads Spark's analyzed plan of a query: a chain of projections and filters that `columnar` can do, or a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atonce.spark.planning.expressions import (
    ARROW,
    FUNCTIONS,
    Call,
    Column,
    Columnar,
    Constant,
    Expression,
    Field,
    Filter,
    Project,
)
from atonce.spark.planning.pruning import unstarted
from atonce.spark.task_errors import in_words

_COMPARED = frozenset(["EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"])
_COMPARABLE = frozenset(["integer", "long", "string", "binary"])
_ARITHMETIC = frozenset(["Add", "Subtract", "Multiply"])
_THROUGH = frozenset(["SubqueryAlias", "View"])


class NotColumnar(Exception):
    """This query is Spark's to run; says why."""


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    fields: dict[str, Any]
    children: list[_Node] = field(default_factory=list)


def on_columns(spark: Any, schema: Any, build: Callable[[Any], Any]) -> tuple[Columnar, Any]:
    """All that `build(df)` does, as a function on record batches, and the schema of what it gives; or `NotColumnar`."""
    try:
        df = build(unstarted(spark, schema))
        return columnar(df._jdf.queryExecution().analyzed()), df.schema
    except NotColumnar:
        raise
    except Exception as error:  # wrong, and then the real build will say so, in its own place
        raise NotColumnar(f"the transform's plan cannot be looked at ({in_words(error)})") from error


def columnar(analyzed: Any) -> Columnar:
    """`analyzed` is the JVM's logical plan; `NotColumnar` unless all of it can be done on columns."""
    plan = _tree(json.loads(analyzed.toJSON()))
    outputs = _named(analyzed.output())
    if len({name for _, name in outputs}) < len(outputs):
        raise NotColumnar("two columns have the same name")
    stages: list[Filter | Project] = []
    while plan.children:
        if len(plan.children) > 1:
            raise NotColumnar(f"{plan.name} has more than one input")
        if plan.name == "Project":
            stages.append(Project(tuple(_output(each) for each in plan.fields["projectList"])))
        elif plan.name == "Filter":
            condition, kind = _translated(_tree(plan.fields["condition"]))
            _require(kind == "boolean", "a condition that is not true or false")
            stages.append(Filter(condition))
        elif plan.name not in _THROUGH:
            raise NotColumnar(f"{plan.name} needs more than one record at a time")
        plan = plan.children[0]
    _require(plan.name == "StreamingRelation", f"{plan.name} is not the source")
    used = {number for stage in stages for number in _uses(stage)} | {number for number, _ in outputs}
    read = [(_number(_tree(each)), str(_tree(each).fields["name"])) for each in plan.fields["output"]]
    return Columnar(tuple(each for each in read if each[0] in used), tuple(reversed(stages)), tuple(outputs))


def _tree(flat: list[dict[str, Any]]) -> _Node:
    """Spark writes a tree as a list: every node, then its children, each with how many it has."""
    return _next(iter(flat))


def _next(flat: Iterator[dict[str, Any]]) -> _Node:
    fields = next(flat)
    children = [_next(flat) for _ in range(fields["num-children"])]
    return _Node(str(fields["class"]).rpartition(".")[2], fields, children)


def _named(attributes: Any) -> list[tuple[int, str]]:
    found = (attributes.apply(i) for i in range(attributes.size()))
    return [(int(each.exprId().id()), str(each.name())) for each in found]


def _number(node: _Node) -> int:
    return int(node.fields["exprId"]["id"])


def _uses(stage: Filter | Project) -> Iterator[int]:
    if isinstance(stage, Filter):
        yield from stage.condition.uses()
    else:
        for _, expression in stage.outputs:
            yield from expression.uses()


def _output(flat: list[dict[str, Any]]) -> tuple[int, Expression]:
    node = _tree(flat)
    return _number(node), _translated(node.children[0] if node.name == "Alias" else node)[0]


def _translated(node: _Node) -> tuple[Expression, str]:
    """The expression, and Spark's name of its type."""
    if node.name == "AttributeReference":
        return Column(_number(node)), str(node.fields["dataType"])
    if node.name == "Literal":
        return _constant(node)
    if node.name == "Alias":
        return _translated(node.children[0])
    if node.name == "Cast" and _is_null(node.children[0]):
        return _constant(_Node("Literal", {"dataType": node.fields["dataType"]}))
    if node.name == "GetStructField":
        return _field(node)
    arguments, kinds = _all(node.children)
    name, kind = _call(node, kinds)
    if name is None:
        return arguments[0], kind
    _require(name in FUNCTIONS, f"{name} is not done on columns")
    return Call(name, arguments), kind


def _field(node: _Node) -> tuple[Expression, str]:
    """A field of a struct, such as `value.id` of a record that was parsed."""
    of, number = node.children[0], int(node.fields["ordinal"])
    kind = _struct(of)[number]["type"]
    return Field(_translated(of)[0], number), kind if isinstance(kind, str) else "nested"


def _struct(node: _Node) -> list[dict[str, Any]]:
    """The fields of a struct that a column is, or holds."""
    kind = node.fields.get("dataType")
    if node.name == "GetStructField":
        kind = _struct(node.children[0])[int(node.fields["ordinal"])]["type"]
    _require(isinstance(kind, dict) and kind.get("type") == "struct", f"a field of {node.name}")
    return list(kind["fields"])  # type: ignore[index]


def _all(nodes: list[_Node]) -> tuple[tuple[Expression, ...], list[str]]:
    found = [_translated(node) for node in nodes]
    return tuple(expression for expression, _ in found), [kind for _, kind in found]


def _is_null(node: _Node) -> bool:
    return node.name == "Literal" and node.fields.get("value") is None


def _constant(node: _Node) -> tuple[Expression, str]:
    kind, text = str(node.fields["dataType"]), node.fields.get("value")
    _require(kind in ARROW, f"a constant of type {kind}")
    read: dict[str, Callable[[str], Any]] = {"integer": int, "long": int, "boolean": lambda word: word == "true"}
    return Constant(None if text is None else read.get(kind, str)(text), kind), kind


def _call(node: _Node, kinds: list[str]) -> tuple[str | None, str]:
    """(name among the functions or None for nothing to do, type); all conditions for meaning the same are here."""
    name, alike = node.name, len(set(kinds)) == 1
    if name == "Cast":
        wanted = str(node.fields["dataType"])
        return (None if wanted == kinds[0] else f"{kinds[0]} to {wanted}"), wanted
    if name in ("Upper", "Lower"):
        _require(kinds == ["string"], f"{name} of {kinds[0]}")
        return name, "string"
    if name == "Length":
        return f"Length of {kinds[0]}", "integer"
    if name == "Concat":
        _require(alike and kinds[0] in ("string", "binary"), "Concat of something that is not text")
        return name, kinds[0]
    if name in _COMPARED:
        _require(alike and kinds[0] in _COMPARABLE, f"{name} of {' and '.join(kinds)}")
        return name, "boolean"
    if name in ("And", "Or", "Not"):
        _require(set(kinds) == {"boolean"}, f"{name} of {' and '.join(kinds)}")
        return name, "boolean"
    if name in ("IsNull", "IsNotNull"):
        return name, "boolean"
    if name == "Coalesce":
        _require(alike and kinds[0] in _COMPARABLE, f"Coalesce of {' and '.join(kinds)}")
        return name, kinds[0]
    if name == "If":
        _require(kinds[0] == "boolean" and kinds[1] == kinds[2] and kinds[1] in _COMPARABLE, "If of several types")
        return name, kinds[1]
    if name in _ARITHMETIC:
        _require(alike and kinds[0] in ("integer", "long"), f"{name} of {' and '.join(kinds)}")
        return name, kinds[0]
    raise NotColumnar(f"{name} is not done on columns")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotColumnar(otherwise)
