"""`Pipeline`: source, transform and sink at a declared guarantee; and `deliver`, the sinks for any Spark stream."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from atonce.delivery.abilities import (
    Cautious,
    DeletesByKey,
    Doubtful,
    GivesSink,
    GivesSource,
    GoesElsewhere,
    MadeByAsking,
    OnServers,
    PutsAside,
    RunsFunctions,
    Saying,
    as_sink,
    as_source,
)
from atonce.delivery.contract import Sink, Source
from atonce.delivery.events import Observer, Silent
from atonce.delivery.letters import HasLetters, Kept
from atonce.delivery.metrics import Numbers, Several
from atonce.delivery.moving.adopt import CHOICES, Adopted, Unfinished, adopt
from atonce.delivery.moving.backfill import FIRST, Span, bounded, marked, same_output
from atonce.delivery.moving.rewind import Rewind, rewind, target_positions, time_named
from atonce.delivery.run import Job, Run
from atonce.delivery.started import Started
from atonce.errors import UsageError
from atonce.guarantee import Guarantee, Verdict, require
from atonce.guarantee import strongest as strongest_of
from atonce.notebook import shown
from atonce.spark.checkpoint.left import left_by_query
from atonce.spark.engine import SparkEngine
from atonce.spark.planning.determinism import refuse_unproven
from atonce.spark.planning.planner import ARROW_SCHEMA, Planner, Transform
from atonce.spark.session import session
from atonce.spark.steps.cdc import Cdc
from atonce.spark.steps.deletes import Deletes
from atonce.spark.steps.parse import Parse
from atonce.spark.versions import need_python_sources
from atonce.stopping import stopped_by_signals

if TYPE_CHECKING:  # what a user's type checker is told; nothing of it is imported at run time
    from atonce.spark.planning.planner import DataFrame
    from atonce.spark.steps.replaying import Replay
    from atonce.verify import Options as VerifyOptions
    from atonce.verify import Verdict as Verified

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
CHECKPOINTS = Path(".atonce/checkpoints")


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
    parsing: Parse | Cdc | None = field(default=None, kw_only=True)
    removing: Deletes | None = field(default=None, kw_only=True)
    transforms: tuple[Transform, ...] = field(default=(), kw_only=True)
    arrow: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    arrow_schema: str = field(default=ARROW_SCHEMA, kw_only=True)
    say: Callable[[str], None] = field(default=print, kw_only=True, repr=False, compare=False)
    """Where words to the user go."""
    span: Span | None = field(default=None, kw_only=True, repr=False)
    """Of a backfill: which part of the input, and beside which pipeline."""
    places: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False, compare=False)
    """Where source and sink stand in a file, so that what is wrong with them can be found there."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is not a pipeline name: it becomes a consumer group and a transactional id, so 1 to "
                "200 letters, digits, '.', '_' and '-' are allowed"
            )
        if isinstance(self.guarantee, str):
            object.__setattr__(self, "guarantee", Guarantee.parse(self.guarantee))
        refuse_trigger(self.trigger)

    # What a user writes

    def read(self, source: Source | GivesSource) -> Pipeline:
        """From `Kafka`, `Files`, `Table`, or any other `Source`."""
        return replace(self, source=source)

    def transform(self, fn: Transform) -> Pipeline:
        """A function DataFrame → DataFrame, or SQL over `input`.

        Projections and filters that mean the same on Arrow columns run there, as `map_arrow` does, and what is said
        there of the output's partitions and columns holds. A function is called to be planned, so more than once.
        """
        return replace(self, transforms=(*self.transforms, fn))

    def parse(self, format: str, schema: str, *, column: str = "value", separator: str = ",") -> Pipeline:
        """The records' value (or key) as JSON or CSV of a schema ("id bigint, name string"): it becomes a struct.

        What does not fit the schema becomes no null: the record goes to the sink's dead letters, or stops the pipeline.
        A record without a value (a tombstone) stays one. Comes before `transform`, and runs on columns.
        """
        if self.transforms or self.arrow is not None:
            raise UsageError(
                "parse reads the records as they come, so it comes before transform, and without map_arrow"
            )
        return replace(self, parsing=Parse(format=format, schema=schema, column=column, separator=separator))

    def cdc(self, format: str, schema: str, *, order: str | None = None, op: str = "op") -> Pipeline:
        """Changes of a database as rows: `format` is debezium, or plain (an object with the row's fields and `op`).

        `schema` is the table's columns. Each row has a boolean column `deleted`, and one that orders the changes of a
        key: what `order` names ("source.lsn bigint" → `lsn`), or else `change_offset`, the record's offset. The sink is
        an upsert with delete="deleted" (or soft_delete) and that order. What is no such change is put aside.
        """
        if self.transforms or self.arrow is not None or self.parsing is not None or self.removing is not None:
            raise UsageError(
                "cdc reads the records as they come: before transform, without parse, map_arrow and deletes"
            )
        step = Cdc(format=format, schema=schema, order=order, op=op)
        return replace(self, parsing=step, transforms=(step.flat,))

    def deletes(self, when: str) -> Pipeline:
        """Which rows delete the row of their key: "tombstones" (records without a value), or a condition on the rows
        that the transform gives, such as "status = 'gone'". The sink is an upsert into a table.

        A tombstone's key, and the order of the sink's order_by, must come of the record's key, offset or timestamp,
        since it has no value. Filters let it pass.
        """
        if self.arrow is not None:
            raise UsageError("deletes looks at the rows of a transform, and map_arrow hands them to the sink itself")
        if isinstance(self.parsing, Cdc):
            raise UsageError("cdc says which rows delete, so deletes is not needed with it")
        return self._deleting(Deletes(when=when), self.sink)

    def _deleting(self, step: Deletes, sink: Any) -> Pipeline:
        if sink is None:
            return replace(self, removing=step)
        given = as_sink(sink)
        if not isinstance(given, DeletesByKey):
            raise UsageError(f"deletes needs a table with an upsert, and {given.describe()} has no row of a key")
        given, column = given.deleting(step.column)
        return replace(self, removing=replace(step, column=column), sink=given)

    def map_arrow(self, fn: Callable[[Any], Any], schema: str = ARROW_SCHEMA) -> Pipeline:
        """A function on Arrow record batches. It runs in the source's tasks: rows never visit the JVM.

        What it writes into is fixed at the start: partitions added to the output topic meanwhile make the query start
        again (below at-least-once they wait for the next start), and a PostgreSQL table whose columns change stops the
        pipeline.
        """
        if self.transforms or self.parsing is not None or self.removing is not None:
            raise UsageError(
                "map_arrow runs inside the source's tasks, so it comes before transform, and without parse or deletes"
            )
        return replace(self, arrow=fn, arrow_schema=schema)

    def write(self, sink: Sink | GivesSink, mode: str | None = None) -> Pipeline:
        """`mode` is Spark's output mode: append, update or complete."""
        if mode not in (None, "append", "update", "complete"):
            raise UsageError(f"mode {mode!r} is not one of: append, update, complete")
        made = replace(self, sink=sink, mode=mode)
        return made if self.removing is None else made._deleting(Deletes(when=self.removing.when), sink)

    def backfill(self, name: str, *, start: str = "earliest", until: str = FIRST, into: str | None = None) -> Pipeline:
        """A pipeline of another name that delivers a part of the same input beside this one, and ends.

        `start` and `until`: earliest, latest, a time (2026-01-31T12:00:00Z), offsets, or `first`, where this pipeline
        began. `into` names another table or topic; into the same one only what is exact together is allowed.
        """
        if name == self.name:
            raise UsageError(f"a backfill of {name!r} needs a name of its own: under the same one it would take over")
        sink = self.sink
        if into is not None:
            if not isinstance(sink, GoesElsewhere):
                raise UsageError(f"{as_sink(sink).describe()} cannot be given another name with --into")
            sink = sink.into(into)
        span = Span(live=self.name, start=start, until=until, sink=self.sink, shared=sink == self.sink)
        checkpoint = f"{self.checkpoint.rstrip('/')}.{name}" if self.checkpoint else None
        return replace(self, name=name, sink=sink, checkpoint=checkpoint, span=span)

    # What a user does with it

    def run(self, available_now: bool = False) -> None:
        """Until stopped (Ctrl-C and SIGTERM finish or abort the running batch), or until all input is delivered."""
        with stopped_by_signals() as stops:
            started = self.start(available_now)
            stops.append(started.stop)
            started.wait()

    def start(self, available_now: bool = False) -> Started:
        """Starts it in the background. What comes back stays valid while its query is started again:

        `stop()`, `wait()`, `status`, `progress` (batches, rows, restarts …), `exception()`; `query` is Spark's own.
        """
        return self.started(Numbers(self.name, self.level.value), available_now)

    def explain(self, ask: bool = False) -> str:
        """Which guarantee source and sink allow, why, where progress is kept, and the boundary of the promise.

        `ask`: also ask the servers that are named for what would stop it, and for what they may forget.
        """
        from atonce.explain import explanation

        source, sink = self._parts()
        planner, asked = self.planner(), self._asked() if ask else []
        spark = [session(self.master, self.spark)] if ask else []

        def started() -> Any:
            if not spark:
                spark.append(session(self.master, self.spark))
            return spark[0]

        state, order = planner.unproven(started), planner.row_order(started)
        return explanation(
            self.name,
            self.level,
            source.traits(),
            sink.traits(),
            self.checkpoint_path(),
            state=state,
            order=order,
            runs=planner.words(spark[0] if spark else None),
            steps=self._step_words(sink),
            asked=asked,
            chosen=[line for part in (source, sink) if ask and isinstance(part, Saying) for line in part.says()],
        )

    def reset(self, to: str, agree: Callable[[Rewind], None] = lambda _: None) -> str | None:
        """Rewinds a stopped pipeline to `earliest`, `latest`, a time (2026-01-31T12:00:00Z) or offsets.

        Returns where the old checkpoint went.
        """
        with self._somewhere() as here:
            source, sink = here._checked_parts()
            return rewind(
                name=self.name,
                guarantee=self.level,
                fingerprint=here.fingerprint(),
                source=source,
                sink=sink,
                to=target_positions(source, to),
                partial=to not in ("earliest", "latest") and time_named(to) is None,
                checkpoint=self.checkpoint_path(),
                engine=SparkEngine(session(here.master, here.spark)),
                agree=agree,
            )

    def adopt(self, checkpoint: str, unfinished: Unfinished | None = None) -> Adopted:
        """Begins where a query with Spark's own Kafka connector ended, by its `checkpointLocation`. Stop it first.

        `unfinished`: what becomes of a batch that was planned and not committed: "again" or "done".
        """
        if unfinished is not None and unfinished not in CHOICES:
            raise UsageError(f"unfinished is {unfinished!r}, which is not one of: {', '.join(CHOICES)}")
        with self._somewhere() as here:
            source, sink = here._checked_parts()
            spark = session(here.master, here.spark)
            return adopt(
                name=self.name,
                guarantee=self.level,
                fingerprint=here.fingerprint(),
                source=source,
                sink=sink,
                left=left_by_query(checkpoint, spark, source.positions),
                unfinished=unfinished,
                checkpoint=self.checkpoint_path(),
                engine=SparkEngine(spark),
            )

    def dead_letters(self) -> list[Kept]:
        """What its sink has put aside: each with the input record, the reason, and what became of it."""
        with self._somewhere() as here:
            sink = as_sink(here.sink)
            if not isinstance(sink, HasLetters):
                raise UsageError(f"{sink.describe()} keeps no dead letters")
            return sink.kept_letters(self.name)

    def replay_dead_letters(self, choose: Callable[[Kept], bool] = lambda kept: True) -> Replay:
        """Delivers dead letters after all, by today's transform: each once, with its mark in one transaction."""
        from atonce.spark.steps.replaying import replay

        with self._somewhere() as here:
            here._checked_parts()
            return replay(self.name, here.planner(), session(here.master, here.spark), choose)

    def verify(self, **options: Unpack[VerifyOptions]) -> Verified:
        """Kills it at every failure point and reports what was lost or duplicated."""
        import importlib

        verified: Verified = importlib.import_module("atonce.verify").verify_pipeline(self, **options)
        return verified

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
            "transform": "|".join(self._steps()),
            "level": self.level.value,
            "sink": sink.describe(),
        }
        plain = " ".join(f"{k}:{hashlib.sha256(v.encode()).hexdigest()[:8]}" for k, v in described.items())
        return plain if self.span is None else marked(plain, self.span.live)

    def _step_words(self, sink: Sink) -> list[tuple[str, str]]:
        """For `explain`: parse or cdc, and where dead letters go."""
        found = []
        if self.parsing is not None:
            found.append(("cdc" if isinstance(self.parsing, Cdc) else "parse", self.parsing.words()))
        if self.removing is not None:
            found.append(("deletes", self.removing.words()))
        if isinstance(sink, PutsAside) and sink.puts_aside:
            found.append(("put aside", f"what cannot be delivered, with its input record: {sink.where_aside()}"))
        elif self.parsing is not None:
            found.append(("put aside", "nothing: a record that cannot be read stops the pipeline (on_error)"))
        return found

    def _steps(self) -> list[str]:
        first = [] if self.parsing is None else [self.parsing.words()]
        last = [] if self.removing is None else [self.removing.words()]
        functions = (*self.transforms, *([self.arrow] if self.arrow else []))
        return [*first, *(_source_text(fn) for fn in functions), *last]

    @contextlib.contextmanager
    def running(self, available_now: bool = False) -> Iterator[Run]:
        """Everything checked and open, nothing delivered yet."""
        need_python_sources()
        source, sink = self._parts()
        require(self.level, source.traits(), sink.traits())
        with self._somewhere() as here:
            source, sink = here._checked_parts()
            for line in cautions((source, sink), self.level):
                self.say(f"{self.name}: {line}")
            planner = here.planner()
            spark = session(here.master, here.spark, warm=True, sees_rows=planner.sees_rows())
            refuse_unproven(planner.unproven(lambda: spark), self.name)
            engine = SparkEngine(spark)
            job = here._job(source, sink, planner, available_now or here.span is not None)
            if here.span is not None:
                span = replace(here.span, shared=same_output(sink, here.span.sink))
                found = bounded(
                    span,
                    self.name,
                    here.fingerprint(),
                    sink=sink,
                    source=source,
                    engine=engine,
                    stateful=span.shared and planner.stateful(spark),
                )
                job = replace(job, source=found.source, until=found.until, below=found.below)
            run = Run(job, engine)
            try:
                run.check()
                yield run
            finally:
                run.close()

    def started(
        self, numbers: Numbers, available_now: bool = False, checked: Callable[[str], None] = lambda name: None
    ) -> Started:
        """`checked` is called with the name when nothing is wrong with it and nothing of it is made yet."""
        watched = replace(self, observer=Several(self.observer, numbers))
        with contextlib.ExitStack() as stack:
            run = stack.enter_context(watched.running(available_now))
            checked(self.name)
            run.start()
            return Started(run, numbers, stack.pop_all().close, shown)

    def at(self, servers: str) -> Pipeline:
        """The same pipeline with whatever names no servers on these."""
        source, sink = (part.at(servers) if isinstance(part, OnServers) else part for part in (self.source, self.sink))
        return replace(self, source=source, sink=sink, span=self.span and self.span.at(servers))

    @contextlib.contextmanager
    def _somewhere(self) -> Iterator[Pipeline]:
        """With servers of this machine for whatever names none."""
        for part in (self.source, self.sink):
            if isinstance(part, OnServers) and not part.servers:
                with part.local(self.say) as servers:
                    yield self.at(servers)
                return
        yield self

    def _parts(self) -> tuple[Source, Sink]:
        if self.source is None or self.sink is None:
            missing = "read(source)" if self.source is None else "write(sink)"
            raise UsageError(f"pipeline {self.name!r} has no {missing} yet")
        source, sink = as_source(self.source), as_sink(self.sink)
        if self.parsing is not None and not isinstance(source, RunsFunctions):
            raise UsageError(f"parse reads the records of a topic, and {source.describe()} is read by Spark itself")
        if self.parsing is not None and not isinstance(sink, PutsAside):
            raise UsageError(f"parse needs a sink that can put records aside, and {sink.describe()} cannot")
        return source, sink

    def _asked(self) -> list[str]:
        """What the servers say; what would stop a run is one more line here. Nothing is made."""
        source, sink = self._parts()
        lines = []
        for said, part in ((self.source, source), (self.sink, sink)):
            made_by_asking = isinstance(said, MadeByAsking) and not said.exists()
            if made_by_asking or (isinstance(said, OnServers) and not said.servers):
                continue
            try:
                part.check()
            except UsageError as error:
                lines.append(str(error))
        try:
            lines += [] if lines else cautions((source, sink), self.level)
        except UsageError as error:
            lines.append(str(error))
        doubts = [line for part in (source, sink) if isinstance(part, Doubtful) for line in part.doubts()]
        return list(dict.fromkeys([*lines, *doubts]))

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

    def planner(self) -> Planner:
        """What decides where each part runs."""
        source, sink = self._parts()
        return Planner(
            source=source,
            sink=sink,
            level=self.level,
            transforms=self.transforms,
            parse=self.parsing,
            deletes=self.removing,
            arrow=self.arrow,
            arrow_schema=self.arrow_schema,
            conf=self.spark,
            deterministic=self.deterministic,
        )

    def _job(self, source: Source, sink: Sink, planner: Planner, available_now: bool) -> Job:
        return Job(
            name=self.name,
            guarantee=self.level,
            source=source,
            sink=sink,
            planner=planner,
            mode=self.mode,
            checkpoint=self.checkpoint_path(),
            trigger=_trigger(self.trigger, available_now),
            fingerprint=self.fingerprint(),
            observer=self.observer,
            say=self.say,
        )


def deliver(
    sink: Sink | GivesSink,
    *,
    name: str,
    guarantee: str = Guarantee.EFFECTIVELY_ONCE.value,
    checkpoint: str | None = None,
    deterministic: bool = False,
    observer: Observer | None = None,
) -> Callable[[DataFrame, int], None]:
    """For plain Structured Streaming: `df.writeStream.foreachBatch(atonce.deliver(…))`, whatever the source of `df`.

    `checkpoint` is the query's checkpointLocation; None: the query is asked for it. Positions of unknown sources cannot
    be compared, so the ledger keeps query id and batch id. `deterministic` is your word that what feeds the query's
    state always gives the same for the same input.
    """
    from atonce.spark.foreign import ForeignDelivery

    made = ForeignDelivery(
        sink=as_sink(sink),
        name=name,
        checkpoint=checkpoint,
        guarantee=Guarantee.parse(guarantee),
        instance=uuid.uuid4().hex[:12],
        observer=observer or Silent(),
        deterministic=deterministic,
    )
    for line in cautions((made.sink,), made.guarantee):
        logging.getLogger("atonce").warning("%s: %s", name, line)
    return made


def cautions(parts: Iterable[Source | Sink], level: Guarantee) -> list[str]:
    """What may be forgotten or cannot be checked, and is no reason to refuse the pipeline."""
    return [line for part in parts if isinstance(part, Cautious) for line in part.cautions(level)]


def _anywhere(part: Any) -> Any:
    return part.anywhere() if isinstance(part, OnServers) else part


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


def _source_text(fn: Transform) -> str:
    if isinstance(fn, str):
        return fn
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return getattr(fn, "__qualname__", type(fn).__qualname__)
