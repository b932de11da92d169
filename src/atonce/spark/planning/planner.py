"""The planner: what of a pipeline runs where, and why, as a value. A run carries it out, `explain` prints the why.

Three places: on Arrow columns in the source's tasks together with the sink's part, so that rows never visit the JVM;
on columns there, and the rest after it; or in Spark's JVM, which does everything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from atonce.delivery.abilities import (
    Accepts,
    ArrowFunction,
    Fuses,
    KeepsLastRow,
    PutsAside,
    RunsFunctions,
    TakesColumns,
)
from atonce.delivery.contract import OpenSink, Sink, Source
from atonce.delivery.engine import Placement
from atonce.guarantee import Guarantee
from atonce.spark.arrow_job import column, map_in_arrow
from atonce.spark.planning.columnar_plan import NotColumnar, on_columns
from atonce.spark.planning.determinism import surely_stateless, unproven
from atonce.spark.planning.origin import with_origin
from atonce.spark.planning.pruning import Pick, unstarted, used_columns
from atonce.spark.planning.row_order import RowOrder, of_stream, refuse_without_order
from atonce.spark.planning.statefulness import is_stateful
from atonce.spark.steps.cdc import Cdc
from atonce.spark.steps.deletes import Deletes
from atonce.spark.steps.parse import Parse, Then, Unheard
from atonce.spark.task_errors import in_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame

ARROW_SCHEMA = "key binary, value binary"
COLUMNS = "spark.atonce.columns"
"""A Spark setting; false: transforms always run in the JVM, never on columns in the source's tasks."""
_WITH_A_WAY_BACK = (Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE)

Transform: TypeAlias = "Callable[[DataFrame], DataFrame] | str"
_naming = threading.Lock()
"""Pipelines of one session, started or restarted at once, all call their input `input`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Of one pipeline."""

    source: Source
    sink: Sink
    level: Guarantee
    transforms: tuple[Transform, ...] = ()
    parse: Parse | Cdc | None = None
    deletes: Deletes | None = None
    arrow: Callable[[Any], Any] | None = None
    arrow_schema: str = ARROW_SCHEMA
    conf: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool = False

    # What runs where

    def placed(self, session: Any, sink: OpenSink, on_columns: bool) -> Placement:
        source = self.source
        if not isinstance(source, RunsFunctions):
            return Placement(why=f"in Spark's JVM: {source.describe()} is read by Spark itself")
        if self.arrow is None:
            if not on_columns:
                return self._in_the_jvm(source, session, "a value was met that columns do not treat as Spark does")
            try:
                return self._on_columns(source, session, sink)
            except NotColumnar as reason:
                return self._in_the_jvm(source, session, str(reason))
        whole = None if self.transforms else _with_sink(source, sink, self.arrow, self.arrow_schema, "map_arrow")
        alone = source.running(_Each(self.arrow), self.arrow_schema)
        after = "the transform" if self.transforms else "the sink's part"
        return whole or Placement(
            why=f"map_arrow on columns in the source's tasks, {after} in Spark's JVM", options=alone
        )

    def words(self, session: Any | None) -> str:
        """The same for `explain`, which opens no sink; `session` None: Spark is not asked."""
        source, takes = self.source, isinstance(self.sink, TakesColumns) and self.sink.fuses
        if not isinstance(source, RunsFunctions):
            return f"in Spark's JVM: {source.describe()} is read by Spark itself"
        if self.arrow is not None:
            if takes and not self.transforms:
                return "map_arrow and the sink's part on columns in the source's tasks"
            after = "the transform" if self.transforms else "the sink's part"
            return f"map_arrow on columns in the source's tasks, {after} in Spark's JVM"
        try:
            if session is None:
                self._refuse_columns(None)
                return "on columns in the source's tasks where Spark's plan allows it, else in Spark's JVM"
            self._columnar(source, session)
            first = "parse, " if self.parse is not None else ""
            return f"{first}the transform and the sink's part on columns in the source's tasks"
        except NotColumnar as reason:
            first = "parse on columns in the source's tasks, the rest " if self.parse is not None else ""
            return f"{first}in Spark's JVM: {reason}"

    def sees_rows(self) -> bool:
        """Whether records become rows of the JVM, or stay Arrow columns in Python from source to sink."""
        inside = self.arrow is not None and not self.transforms and isinstance(self.source, RunsFunctions)
        return not (inside and isinstance(self.sink, TakesColumns) and self.sink.fuses)

    def _on_columns(self, source: RunsFunctions, session: Any, sink: OpenSink) -> Placement:
        """The whole transform, and the sink's part with it; `NotColumnar` where Spark's JVM must do it."""
        transform, gives = self._columnar(source, session)
        if isinstance(sink, Accepts):
            sink.accepts(gives)
        ddl = _ddl(gives)
        whole, what = (transform, "the transform")
        if self.parse is not None:
            whole, what = Then(self.parse.ready(), transform), "parse, the transform"
        found = _with_sink(source, sink, whole, ddl, what)
        if found is None:
            raise NotColumnar("the sink takes rows")
        return found

    def _columnar(self, source: RunsFunctions, session: Any) -> tuple[Any, Any]:
        self._refuse_columns(session)
        return on_columns(session, self._read_schema(source), self.build)

    def _read_schema(self, source: RunsFunctions) -> Any:
        """Of what the transform is given (Spark's StructType)."""
        given = source.arrow_schema()
        return given if self.parse is None else self.parse.gives(given)

    def _refuse_columns(self, session: Any | None) -> None:
        """`NotColumnar` for reasons that need no look at the plan."""
        # What a batch needs is known only when its values are seen: levels that may record its progress before its
        # output is there have no way back by then.
        if self.level not in _WITH_A_WAY_BACK:
            raise NotColumnar(f"{self.level.value} records progress first, and a batch could not run again there")
        if not (isinstance(self.sink, TakesColumns) and self.sink.fuses):
            raise NotColumnar("the sink takes rows")
        given = "true" if session is None else session.conf.get(COLUMNS, "true")
        if self.conf.get(COLUMNS, given) != "true":
            raise NotColumnar(f"{COLUMNS} is false")

    def _in_the_jvm(self, source: RunsFunctions, session: Any, reason: str) -> Placement:
        if self.parse is None:
            return self._pruned(source, session, reason)
        options = source.running(_Each(self.parse.ready()), _ddl(self._read_schema(source)))
        return Placement(
            why=f"parse on columns in the source's tasks, the rest in Spark's JVM: {reason}", options=options
        )

    def _pruned(self, source: RunsFunctions, session: Any, reason: str) -> Placement:
        """Only the columns that SQL asks for. A user's function is not asked: it may do more than to be planned."""
        why = f"in Spark's JVM: {reason}"
        if not self.transforms or not all(isinstance(fn, str) for fn in self.transforms):
            return Placement(why=why)
        schema = source.arrow_schema()
        names = used_columns(session, schema, self.build)
        if names is None or len(names) == len(schema.names):
            return Placement(why=why)
        ddl = ", ".join(f"{name} {schema[name].dataType.simpleString()}" for name in names)
        return Placement(why=why, options=source.running(Pick(names), ddl))

    # What the user wrote, applied

    def gives(self, session: Any) -> Any:
        """The schema of the rows, from a stream that is never started; what is refused of the plan is refused here."""
        return self._in_order(self._unstarted(session)).schema

    def build(self, df: Any) -> Any:
        """The transforms, and what is refused of them before anything starts."""
        made = self._in_order(self.applied(df, hooked=isinstance(self.source, RunsFunctions)))
        return with_origin(made, df) if isinstance(self.sink, PutsAside) and self.sink.puts_aside else made

    def _in_order(self, df: Any) -> Any:
        if df.isStreaming and isinstance(self.sink, KeepsLastRow) and (keys := self.sink.keys_by_order()):
            refuse_without_order(keys, self.sink.traits().name, self.source.traits().ordered, df)
        return df

    def applied(self, df: Any, *, hooked: bool) -> Any:
        """The transforms; `hooked`: the Arrow function, or parse, is applied already, inside the source."""
        if self.parse is not None and not hooked and df.schema[self.parse.column].dataType.simpleString() == "binary":
            df = map_in_arrow(df, _Each(Unheard(self.parse.ready())), _ddl(self.parse.gives(df.schema)))
        if self.arrow is not None and not hooked:
            df = map_in_arrow(df, _Each(self.arrow), self.arrow_schema)
        made = df
        for fn in self.transforms:
            made = _apply(fn, made)
        return made if self.deletes is None else self.deletes.applied(made, df)

    # What its plan says

    def unproven(self, session: Callable[[], Any]) -> list[str]:
        """What feeds a state and may come out otherwise when a batch is computed again. Spark is asked only where the
        text of a transform does not tell that it has no state."""
        texts = all(isinstance(fn, str) and surely_stateless(fn) for fn in self.transforms)
        if self.level is not Guarantee.EFFECTIVELY_ONCE or self.deterministic or texts:
            return []
        try:
            df = self._unstarted(session())
        except Exception:
            return []  # the real build will say what is wrong, in its own place
        return unproven(df)

    def stateful(self, session: Any) -> bool:
        return is_stateful(self._unstarted(session))

    def row_order(self, session: Callable[[], Any]) -> RowOrder | None:
        """What the plan says of the rows of a key, where the sink depends on it."""
        if not isinstance(self.sink, KeepsLastRow) or not (keys := self.sink.keys_by_order()):
            return None
        try:
            return of_stream(self._unstarted(session()), keys)
        except Exception as error:
            return RowOrder("kept", f"the transform's plan cannot be looked at here ({in_words(error)}); a run will")

    def _unstarted(self, session: Any) -> Any:
        """The transform over a stream that is never started: for its plan alone."""
        source = self.source
        asked = isinstance(source, RunsFunctions)
        loaded = unstarted(session, self._read_schema(source)) if asked else source.load(session, None, {})  # type: ignore[arg-type]
        return self.applied(loaded, hooked=False)


def _ddl(schema: Any) -> str:
    return ", ".join(f"{column(each.name)} {each.dataType.simpleString()}" for each in schema.fields)


def _with_sink(source: RunsFunctions, sink: OpenSink, transform: Any, schema: str, what: str) -> Placement | None:
    """A function on record batches and what its sink does with them, as one; None if this sink cannot."""
    found = sink.fused(transform, schema) if isinstance(sink, Fuses) else None
    if found is None:
        return None
    options = source.running(*found)
    return Placement(why=f"{what} and the sink's part on columns in the source's tasks", options=options, encoded=True)


@dataclass(frozen=True, slots=True)
class _Each:
    """A function on one record batch, over all of them."""

    fn: ArrowFunction | Callable[[Any], Any]

    def __call__(self, batches: Any) -> Iterator[Any]:
        from atonce.spark.arrow_transform import transformed

        for batch in batches:
            yield from transformed(self.fn, batch)


def _apply(fn: Transform, df: Any) -> Any:
    if callable(fn):
        return fn(df)
    with _naming:
        df.createOrReplaceTempView("input")
        return df.sparkSession.sql(fn)
