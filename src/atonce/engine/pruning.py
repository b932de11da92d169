"""Which columns of the source a SQL transform uses: the others need not cross from Python into the JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pick:
    """Runs inside the source's tasks: these columns only."""

    names: tuple[str, ...]

    def __call__(self, batches: Any) -> Iterator[Any]:
        return (batch.select(list(self.names)) for batch in batches)


def used_columns(spark: Any, schema: Any, build: Callable[[Any], Any]) -> tuple[str, ...] | None:
    """The columns of `schema` (a StructType) that `build(df)` reads, in order; None when that cannot be told.

    Asked of Spark's optimizer with a stream of files that never starts, since it needs a streaming source to plan for.
    """
    with tempfile.TemporaryDirectory(prefix="atonce-plan-") as empty:
        try:
            analyzed = build(spark.readStream.schema(schema).json(empty))._jdf.queryExecution().analyzed()
            plan = spark._jsparkSession.sessionState().optimizer().execute(analyzed)
            used = _names(plan.output()) | set().union(*map(_read_by, _inner(plan)))
        except Exception:
            return None  # the real build will say what is wrong, in its own place
    found = tuple(name for name in schema.names if name in used)
    return found or None  # a query that reads none still needs one column, to count rows


def _inner(plan: Any) -> Iterator[Any]:
    children = [plan.children().apply(i) for i in range(plan.children().size())]
    if children:
        yield plan
    for child in children:
        yield from _inner(child)


def _read_by(node: Any) -> set[str]:
    return _names(node.references().toSeq())


def _names(attributes: Any) -> set[str]:
    return {str(attributes.apply(i).name()) for i in range(attributes.size())}
