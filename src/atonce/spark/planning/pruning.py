"""Which columns of the source a SQL transform uses: the others need not cross from Python into the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atonce.spark.planning.statefulness import nodes


@dataclass(frozen=True, slots=True)
class Pick:
    """Runs inside the source's tasks: these columns only."""

    names: tuple[str, ...]

    def __call__(self, batches: Any) -> Iterator[Any]:
        return (batch.select(list(self.names)) for batch in batches)


def unstarted(spark: Any, schema: Any) -> Any:
    """A stream of files that never starts: analyzer and optimizer need a streaming source to plan for."""
    return spark.readStream.schema(schema).json(Path(spark.sparkContext._temp_dir).as_uri())


def used_columns(spark: Any, schema: Any, build: Callable[[Any], Any]) -> tuple[str, ...] | None:
    """The columns of `schema` (a StructType) that `build(df)` reads, in order; None when that cannot be told.

    A query may also name columns that it does not read (`EXCEPT`, an inner SELECT, a subquery): only if the same query
    means the same on the columns that are left, they are enough.
    """
    stream = unstarted(spark, schema)
    try:
        whole = build(stream)
        analyzed = whole._jdf.queryExecution().analyzed()
        plan = spark._jsparkSession.sessionState().optimizer().execute(analyzed)
        used = _names(plan.output()).union(*(_names(node.references().toSeq()) for node in nodes(plan)))
        found = tuple(name for name in schema.names if name in used)
        # A query that reads none still needs one column, to count rows.
        return found if found and build(stream.select(*found)).schema == whole.schema else None
    except Exception:
        return None  # the real build will say what is wrong, in its own place


def _names(attributes: Any) -> set[str]:
    return {str(attributes.apply(i).name()) for i in range(attributes.size())}
