"""`Pipeline`: source, transform and sink at a declared guarantee; and `deliver`, the sinks for any Spark stream."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atonce.client.same_cluster import same_cluster
from atonce.connectors.cautions import cautions, kafka_cautions
from atonce.connectors.kafka.local_broker import broker_for
from atonce.connectors.kafka.topic import Kafka
from atonce.connectors.sql.options import TableOptions
from atonce.connectors.sql.row_order import RowOrder, needs_order, of_stream, refuse_without_order
from atonce.connectors.sql.sqlite.sink import SQLite
from atonce.delivery.contract import OpenSink, Sink, Source
from atonce.delivery.events import Observer, Silent
from atonce.delivery.rewind import Rewind, rewind, target_positions
from atonce.delivery.run import Fused, Job, Run
from atonce.errors import UsageError
from atonce.guarantee import Guarantee, Verdict, require
from atonce.guarantee import strongest as strongest_of
from atonce.spark.arrow_job import column, map_in_arrow
from atonce.spark.columnar_plan import on_columns
from atonce.spark.determinism import refuse_unproven, surely_stateless, unproven
from atonce.spark.pruning import Pick, unstarted, used_columns
from atonce.spark.session import session
from atonce.spark.task_errors import in_words

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
CHECKPOINTS = Path(".atonce/checkpoints")
ARROW_SCHEMA = "key binary, value binary"
COLUMNS = "spark.atonce.columns"
"""A Spark setting; false: transforms always run in the JVM, never on columns in the source's tasks."""

Transform = Callable[[Any], Any] | str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Immutable: each of `read`, `transform`, `map_arrow` and `write` gives a new one."""

    name: str
    """Its consumer group, its transactional id and its row in a ledger."""
    guarantee: Guarantee | str = Guarantee.EFFECTIVELY_ONCE
    """none, at-most-once, at-least-once or effectively-once."""
    checkpoint: str | None = field(default=None, kw_only=True)
    """Spark's checkpoint, a path or URL; None: `.atonce/checkpoints/NAME`."""
    trigger: str | None = field(default=None, kw_only=True)
    """An interval such as "5 seconds"; None: the next batch begins when the last is done."""
    master: str | None = field(default=None, kw_only=True)
    """Spark's master; None: `local[*]`."""
    spark: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Spark settings."""
    deterministic: bool = field(default=False, kw_only=True)
    """Your word that what feeds the pipeline's state always gives the same for the same input (functions, tables)."""
    observer: Observer = field(default_factory=Silent, kw_only=True, repr=False, compare=False)
    """Told each step of every delivery (`atonce.delivery.events`)."""
    source: Any = field(default=None, kw_only=True)
    sink: Any = field(default=None, kw_only=True)
    mode: str | None = field(default=None, kw_only=True)
    transforms: tuple[Transform, ...] = field(default=(), kw_only=True)
    arrow: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    arrow_schema: str = field(default=ARROW_SCHEMA, kw_only=True)
    say: Callable[[str], None] = field(default=print, kw_only=True, repr=False, compare=False)
    """Where words to the user go."""
    places: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False, compare=False)
    """Where source and sink stand in a file, so that what is wrong with them can be found there."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is not a pipeline name: it becomes a consumer group and a transactional id, so 1 to "
                f"200 "
                "letters, digits, '.', '_' and '-' are allowed"
            )
        if isinstance(self.guarantee, str):
            object.__setattr__(self, "guarantee", Guarantee.parse(self.guarantee))
        refuse_trigger(self.trigger)

    # What a user writes

    def read(self, source: Source | Kafka) -> Pipeline:
        """From `Kafka`, `Files` or `Table`."""
        return replace(self, source=source)

    def transform(self, fn: Transform) -> Pipeline:
        """A function DataFrame → DataFrame, or SQL over `input`.

        Projections and filters that mean the same on Arrow columns run there, as `map_arrow` does, and what is said
        there of the output's partitions and columns holds. A function is called to be planned, so more than once.
        """
        return replace(self, transforms=(*self.transforms, fn))

    def map_arrow(self, fn: Callable[[Any], Any], schema: str = ARROW_SCHEMA) -> Pipeline:
        """A function on Arrow record batches. It runs in the source's tasks: rows never visit the JVM.

        What it writes into is fixed at the start: partitions added to the output topic meanwhile make the query start
        again (below at-least-once they wait for the next start), and a PostgreSQL table whose columns change stops the
        pipeline.
        """
        if self.transforms:
            raise UsageError("map_arrow runs inside the source's tasks, so it comes before transform")
        return replace(self, arrow=fn, arrow_schema=schema)

    def write(self, sink: Sink | Kafka, mode: str | None = None) -> Pipeline:
        """`mode` is Spark's output mode: append, update or complete."""
        if mode not in (None, "append", "update", "complete"):
            raise UsageError(f"mode {mode!r} is not one of: append, update, complete")
        return replace(self, sink=sink, mode=mode)

    # What a user does with it

    def run(self, available_now: bool = False) -> None:
        """Until stopped (Ctrl-C and SIGTERM finish or abort the running batch), or until all input is delivered."""
        with self.running(available_now) as run, stopped_by_signals(run):
            run.start()
            run.wait()

    def start(self, available_now: bool = False) -> Any:
        """Starts and returns Spark's StreamingQuery; `stop` it when you are done."""
        stack = contextlib.ExitStack()
        run = stack.enter_context(self.running(available_now))
        query = run.start()

        def close_when_ended() -> None:
            with contextlib.suppress(Exception):
                run.wait()
            stack.close()

        threading.Thread(target=close_when_ended, name=f"atonce-{self.name}", daemon=True).start()
        return query

    def explain(self, ask: bool = False) -> str:
        """Which guarantee source and sink allow, why, where progress is kept, and the boundary of the promise.

        `ask`: also ask the servers that are named for what would stop it, and for what they may forget.
        """
        from atonce.explain import explanation

        source, sink = self._parts()
        state, order = self._state_words(source), self._row_order(source, sink)
        return explanation(
            self.name,
            self.level,
            source.traits(),
            sink.traits(),
            self.checkpoint_path(),
            state=state,
            order=order,
            asked=self._asked() if ask else (),
        )

    def reset(self, to: str, agree: Callable[[Rewind], None] = lambda _: None) -> str | None:
        """Rewinds a stopped pipeline to `earliest`, `latest` or offsets. Returns where the old checkpoint went."""
        with broker_for(self.source, self.sink, self.say) as servers:
            here = self if servers is None else self.at(servers)
            source, sink = here._checked_parts()
            kafka = here.source if isinstance(here.source, Kafka) else None
            return rewind(
                name=self.name,
                guarantee=self.level,
                fingerprint=here.fingerprint(),
                source=source,
                sink=sink,
                to=target_positions(source, kafka, to),
                partial=to not in ("earliest", "latest"),
                checkpoint=self.checkpoint_path(),
                input_servers=kafka.servers if kafka else None,
                input_config=dict(kafka.config) if kafka else {},
                spark=session(here.master, here.spark),
                agree=agree,
            )

    def verify(self, **options: Any) -> Any:
        """Kills it at every failure point and reports what was lost or duplicated."""
        import importlib

        return importlib.import_module("atonce.verify").verify_pipeline(self, **options)

    # What the engine needs

    @property
    def level(self) -> Guarantee:
        return Guarantee.parse(self.guarantee)

    def verdict(self) -> Verdict:
        source, sink = self._parts()
        return strongest_of(source.traits(), sink.traits())

    def checkpoint_path(self) -> str:
        return self.checkpoint or str((CHECKPOINTS / self.name).absolute())

    def fingerprint(self) -> str:
        """A hash of each part, so that a change under the same name is noticed and can be named."""
        # Not the servers: the embedded broker has another port in every run, and another cluster another ledger.
        source, sink = as_source(_anywhere(self.source)), as_sink(_anywhere(self.sink))
        described = {
            "source": source.describe(),
            "transform": "|".join(_source_text(fn) for fn in (*self.transforms, *([self.arrow] if self.arrow else []))),
            "level": self.level.value,
            "sink": sink.describe(),
        }
        return " ".join(f"{k}:{hashlib.sha256(v.encode()).hexdigest()[:8]}" for k, v in described.items())

    @contextlib.contextmanager
    def running(self, available_now: bool = False) -> Iterator[Run]:
        """Everything checked and open, nothing delivered yet."""
        source, sink = self._parts()
        require(self.level, source.traits(), sink.traits())
        with broker_for(self.source, self.sink, self.say) as servers:
            here = self if servers is None else self.at(servers)
            source, sink = here._checked_parts()
            for line in cautions(source, sink, self.level):
                self.say(f"{self.name}: {line}")
            spark = session(here.master, here.spark, warm=True, sees_rows=here._sees_rows())
            refuse_unproven(here._unproven(source, spark), self.name)
            run = Run(here._job(source, sink, available_now), spark)
            try:
                yield run
            finally:
                run.close()

    def at(self, servers: str) -> Pipeline:
        """The same pipeline with every Kafka that names no servers on this cluster."""
        return replace(
            self,
            source=self.source.at(servers) if isinstance(self.source, Kafka) else self.source,
            sink=self.sink.at(servers) if isinstance(self.sink, Kafka) else self.sink,
        )

    def _parts(self) -> tuple[Source, Sink]:
        if self.source is None or self.sink is None:
            missing = "read(source)" if self.source is None else "write(sink)"
            raise UsageError(f"pipeline {self.name!r} has no {missing} yet")
        return as_source(self.source), as_sink(self.sink)

    def _asked(self) -> list[str]:
        """What the servers say; what would stop a run is one more line here. Nothing is made."""
        source, sink = self._parts()
        lines = []
        for said, check in ((self.source, source.check), (self.sink, sink.check)):
            made_by_asking = isinstance(said, SQLite) and not Path(said.path).exists()
            if made_by_asking or (isinstance(said, Kafka) and not said.servers):
                continue
            try:
                check()
            except UsageError as error:
                lines.append(str(error))
        try:
            lines += [] if lines else cautions(source, sink, self.level)
        except UsageError as error:
            lines.append(str(error))
        return [*lines, *kafka_cautions(source, sink)]

    def _checked_parts(self) -> tuple[Source, Sink]:
        """Both can be reached and hold what they must; nothing is started before."""
        source, sink = self._parts()
        for what, part in (("source", source), ("sink", sink)):
            try:
                part.check()
            except UsageError as error:
                place = self.places.get(what)
                raise type(error)(f"{place}: {error}") if place else error from None
        return source, sink

    def _job(self, source: Source, sink: Sink, available_now: bool) -> Job:
        kafka_in = self.source if isinstance(self.source, Kafka) else None
        return Job(
            name=self.name,
            guarantee=self.level,
            source=source,
            sink=sink,
            build=self._build(hooked=kafka_in is not None),
            fuse=self._fuse if kafka_in is not None else lambda *_: Fused(),
            mode=self.mode,
            checkpoint=self.checkpoint_path(),
            trigger=_trigger(self.trigger, available_now),
            fingerprint=self.fingerprint(),
            input_servers=kafka_in.servers if kafka_in else None,
            input_config=dict(kafka_in.config) if kafka_in else {},
            input_partitions=source.partition_count() if kafka_in is not None else None,  # type: ignore[attr-defined]
            refuse_cut=source.refuse_cut if kafka_in is not None else lambda *_: None,  # type: ignore[attr-defined]
            mirrored=kafka_in is not None and not self._ledger_with_input(kafka_in),
            observer=self.observer,
            say=self.say,
        )

    def _ledger_with_input(self, kafka_in: Kafka) -> bool:
        """The group's offsets on the input's cluster are the ledger itself, so nothing else may write them."""
        out = self.sink
        return isinstance(out, Kafka) and same_cluster(
            out.servers or "", out.config, kafka_in.servers or "", kafka_in.config
        )

    def _fuse(self, spark: Any, sink: OpenSink, columns: bool) -> Fused:
        """The transform inside the source's tasks, and the sink's part with it where nothing comes between."""
        from atonce.connectors.kafka.read.stream import fused

        if self.arrow is None:
            return (self._on_columns(spark, sink) if columns else None) or self._pruned(spark)
        whole = None if self.transforms else _with_sink(sink, self.arrow, self.arrow_schema)
        return whole or Fused(fused(_Each(self.arrow), self.arrow_schema))

    def _on_columns(self, spark: Any, sink: OpenSink) -> Fused | None:
        """The whole transform, and the sink's part with it; None where Spark's JVM must do it."""
        from atonce.connectors.kafka.read.stream import source_schema

        # What a batch needs is known only when its values are seen: levels that may record its progress before its
        # output is there have no way back by then.
        way_back = self.level in (Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE)
        wanted = self.spark.get(COLUMNS, spark.conf.get(COLUMNS, "true")) == "true"
        if not (way_back and wanted and getattr(as_sink(self.sink), "fuses", False)):
            return None
        schema = source_schema(self.source.headers)
        found = on_columns(spark, schema, lambda df: self._build(hooked=True)(df, None))
        if found is None:
            return None
        transform, gives = found
        accepts = getattr(sink, "accepts", None)
        if accepts is not None:
            accepts(gives)
        ddl = ", ".join(f"{column(each.name)} {each.dataType.simpleString()}" for each in gives.fields)
        return _with_sink(sink, transform, ddl)

    def _pruned(self, spark: Any) -> Fused:
        """Only the columns that SQL asks for. A user's function is not asked: it may do more than to be planned."""
        from atonce.connectors.kafka.read.stream import fused, source_schema

        if not self.transforms or not all(isinstance(fn, str) for fn in self.transforms):
            return Fused()
        schema = source_schema(self.source.headers)
        names = used_columns(spark, schema, lambda df: self._build(hooked=True)(df, None))
        if names is None or len(names) == len(schema.names):
            return Fused()
        ddl = ", ".join(f"{name} {schema[name].dataType.simpleString()}" for name in names)
        return Fused(fused(Pick(names), ddl))

    def _sees_rows(self) -> bool:
        """Whether records become rows of the JVM, or stay Arrow columns in Python from source to sink."""
        sink = as_sink(self.sink)
        inside = self.arrow is not None and not self.transforms and isinstance(self.source, Kafka)
        return not (inside and getattr(sink, "fuses", False))

    def _state_words(self, source: Source) -> list[str]:
        """For `explain`. Spark is asked only where the text of a transform does not tell that it has no state."""
        if not self._may_be_unproven():
            return []
        return self._unproven(source, session(self.master, self.spark))

    def _may_be_unproven(self) -> bool:
        texts = all(isinstance(fn, str) and surely_stateless(fn) for fn in self.transforms)
        return self.level is Guarantee.EFFECTIVELY_ONCE and not self.deterministic and not texts

    def _unproven(self, source: Source, spark: Any) -> list[str]:
        """What feeds a state and may come out otherwise when a batch is computed again."""
        if not self._may_be_unproven():
            return []
        try:
            df = self._unstarted(source, spark)
        except Exception:
            return []  # the real build will say what is wrong, in its own place
        return unproven(df)

    def _row_order(self, source: Source, sink: Sink) -> RowOrder | None:
        """What the transform's plan says of the rows of a key, where an upsert depends on it. Needs Spark."""
        if not isinstance(sink, TableOptions) or not needs_order(sink):
            return None
        try:
            return of_stream(self._unstarted(source, session(self.master, self.spark)), sink.keys)
        except Exception as error:
            return RowOrder("kept", f"the transform's plan cannot be looked at here ({in_words(error)}); a run will")

    def _unstarted(self, source: Source, spark: Any) -> Any:
        """The transform over a stream that is never started: for its plan alone."""
        from atonce.connectors.kafka.read.stream import source_schema

        kafka = self.source if isinstance(self.source, Kafka) else None
        loaded = unstarted(spark, source_schema(kafka.headers)) if kafka else source.load(spark, None, {})
        return self._applied(loaded, hooked=False)

    def _applied(self, df: Any, hooked: bool) -> Any:
        """The transforms; `hooked`: the Arrow function is applied already, inside the source."""
        if self.arrow is not None and not hooked:
            df = map_in_arrow(df, _Each(self.arrow), self.arrow_schema)
        for fn in self.transforms:
            df = _apply(fn, df)
        return df

    def _build(self, hooked: bool) -> Callable[[Any, Any], Any]:
        """The transforms, and what is refused of them before anything starts."""

        def build(df: Any, _: Any) -> Any:
            df = self._applied(df, hooked)
            if df.isStreaming and isinstance(self.sink, TableOptions) and needs_order(self.sink):
                source, sink = self._parts()
                refuse_without_order(self.sink, sink.traits().name, source.traits().ordered, df)
            return df

        return build


def _with_sink(sink: OpenSink, transform: Callable[[Any], Any], schema: str) -> Fused | None:
    """A function on record batches and what its sink does with them, as one; None if this sink cannot."""
    from atonce.connectors.kafka.read.stream import fused

    by_sink = getattr(sink, "fused", None)
    found = by_sink(transform, schema) if by_sink is not None else None
    return None if found is None else Fused(fused(*found), encoded=True)


@dataclass(frozen=True, slots=True)
class _Each:
    """A function on one record batch, over all of them."""

    fn: Any

    def __call__(self, batches: Any) -> Iterator[Any]:
        from atonce.spark.arrow_transform import transformed

        for batch in batches:
            yield from transformed(self.fn, batch)


def deliver(
    sink: Sink | Kafka,
    *,
    name: str,
    guarantee: str = Guarantee.EFFECTIVELY_ONCE.value,
    checkpoint: str | None = None,
    deterministic: bool = False,
    observer: Observer | None = None,
) -> Callable[[Any, int], None]:
    """For plain Structured Streaming: `df.writeStream.foreachBatch(atonce.deliver(…))`, whatever the source of `df`.

    `checkpoint` is the query's checkpointLocation; None: the query is asked for it. Positions of unknown sources cannot
    be compared, so the ledger keeps query id and batch id. `deterministic` is your word that what feeds the query's
    state always gives the same for the same input.
    """
    from atonce.spark.foreign import ForeignDelivery

    return ForeignDelivery(
        sink=as_sink(sink),
        name=name,
        checkpoint=checkpoint,
        guarantee=Guarantee.parse(guarantee),
        instance=uuid.uuid4().hex[:12],
        observer=observer or Silent(),
        deterministic=deterministic,
    )


def as_source(source: Any) -> Source:
    if isinstance(source, Kafka):
        from atonce.connectors.kafka.source import KafkaSource

        return KafkaSource(source)
    return source  # type: ignore[no-any-return]


def as_sink(sink: Any) -> Sink:
    if isinstance(sink, Kafka):
        from atonce.connectors.kafka.sink import KafkaSink

        return KafkaSink(sink)
    return sink  # type: ignore[no-any-return]


def _anywhere(part: Any) -> Any:
    return replace(part, servers=None) if isinstance(part, Kafka) else part


def refuse_trigger(trigger: str | None) -> None:
    if trigger and re.match(r"\s*(continuous|real[- ]?time)", trigger, re.IGNORECASE):
        raise UsageError(
            f"trigger {trigger!r} is refused: continuous and real-time triggers plan their offsets after delivery, "
            f"so no guarantee "
            'can be kept. Next: use an interval such as "1 second", or none at all.'
        )


def _trigger(trigger: str | None, available_now: bool) -> dict[str, Any]:
    if available_now:
        return {"availableNow": True}
    return {"processingTime": trigger} if trigger else {}


def _apply(fn: Transform, df: Any) -> Any:
    if callable(fn):
        return fn(df)
    df.createOrReplaceTempView("input")
    return df.sparkSession.sql(fn)


def _source_text(fn: Transform) -> str:
    if isinstance(fn, str):
        return fn
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return getattr(fn, "__qualname__", type(fn).__qualname__)


@contextlib.contextmanager
def stopped_by_signals(run: Run) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the run to stop; only the main thread can listen to signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: run.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
