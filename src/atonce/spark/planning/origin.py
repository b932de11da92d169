"""A row's origin beside it: topic, partition and offset of its record, through whatever the transform selects.

A transform names the columns that it wants, so that where a row came from is lost behind its first projection. A dead
letter needs it. So the plan is built once more with the source's own columns carried along: through projections,
filters and generators, behind each of which a row comes of one record. Anything else (an aggregate, a join, a union, a
function on batches) gives rows without an origin.
"""

from __future__ import annotations

from typing import Any

from atonce.delivery.letters import ORIGIN

_NAMES = {"topic": "string", "partition": "int", "offset": "bigint"}
_NAMED_ONLY = frozenset(["SubqueryAlias", "View"])
_ONE_BY_ONE = frozenset(["Filter", "Generate", "EventTimeWatermark"])


def with_origin(made: Any, loaded: Any) -> Any:
    """`made`, which a transform gave for `loaded`, with the columns of `ORIGIN`; `made` itself where that is no use."""
    types = {field.name: field.dataType.simpleString() for field in loaded.schema.fields}
    if any(types.get(name) != kind for name, kind in _NAMES.items()) or set(ORIGIN) & set(made.columns):
        return made
    from pyspark.sql.functions import col, lit

    beside = loaded.select("*", *[col(name).alias(hidden) for name, hidden in zip(_NAMES, ORIGIN, strict=False)])
    carried = Rewriting(loaded, beside, _ONE_BY_ONE).made(made)
    if carried is None:
        return made
    return carried.select(*[carried[name] for name in made.columns], *ORIGIN[:3], lit(0).alias(ORIGIN[3]))


class Rewriting:
    """A transform's plan over `loaded`, built once more over `beside`: the same with columns behind those of `loaded`,
    which are carried to the end through whatever gives rows of one record each (`through`)."""

    def __init__(self, loaded: Any, beside: Any, through: frozenset[str], passing: bool = False) -> None:
        """`passing`: rows of which the one column that is carried is true pass all filters."""
        self._session = loaded.sparkSession
        self._jvm = self._session._jvm
        self._through = through
        self._passing = passing
        self._source = loaded._jdf.queryExecution().analyzed()
        self._beside = beside._jdf.queryExecution().analyzed()
        columns, first = self._beside.output(), len(loaded.columns)
        self._hidden = [columns.apply(number) for number in range(first, columns.size())]

    def made(self, df: Any) -> Any | None:
        """`df` with the columns behind its own; None where a row of it is not of one record."""
        from pyspark.sql import DataFrame

        plan = self._of(df._jdf.queryExecution().analyzed())
        if plan is None:
            return None
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session._jsparkSession, plan)
        return DataFrame(dataset, self._session)

    def _of(self, plan: Any) -> Any | None:
        if plan.fastEquals(self._source):
            return self._beside
        if plan.children().size() != 1:
            return None
        name, child = str(plan.nodeName()), self._of(plan.children().apply(0))
        if child is None or name in _NAMED_ONLY:
            return child
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        if name == "Project":
            wanted = plan.projectList()
            listed = [wanted.apply(number) for number in range(wanted.size())]
            return catalyst.plans.logical.Project(self._sequence([*listed, *self._hidden]), child)
        if name == "Filter" and self._passing:
            either = catalyst.expressions.Or(plan.condition(), self._hidden[0])
            return catalyst.plans.logical.Filter(either, child)
        return plan.withNewChildren(self._sequence([child])) if name in self._through else None

    def _sequence(self, items: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)
