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
    Doubtful,
    GivesSink,
    GivesSource,
    MadeByAsking,
    OnServers,
    Saying,
    as_sink,
    as_source,
)
from atonce.delivery.contract import Sink, Source
from atonce.delivery.events import Observer, Silent
from atonce.delivery.metrics import Numbers, Several
from atonce.delivery.rewind import Rewind, rewind, target_positions, time_named
from atonce.delivery.run import Job, Run
from atonce.delivery.started import Started
from atonce.errors import UsageError
from atonce.guarantee import Guarantee, Verdict, require
from atonce.guarantee import strongest as strongest_of
from atonce.notebook import shown
from atonce.spark.engine import SparkEngine
from atonce.spark.planning.determinism import refuse_unproven
from atonce.spark.planning.planner import ARROW_SCHEMA, Planner, Transform
from atonce.spark.session import session
from atonce.stopping import stopped_by_signals

if TYPE_CHECKING:  # what a user's type checker is told; nothing of it is imported at run time
    from atonce.spark.planning.planner import DataFrame
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

    def read(self, source: Source | GivesSource) -> Pipeline:
        """From `Kafka`, `Files`, `Table`, or any other `Source`."""
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

    def write(self, sink: Sink | GivesSink, mode: str | None = None) -> Pipeline:
        """`mode` is Spark's output mode: append, update or complete."""
        if mode not in (None, "append", "update", "complete"):
            raise UsageError(f"mode {mode!r} is not one of: append, update, complete")
        return replace(self, sink=sink, mode=mode)

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
        with self._somewhere() as here:
            source, sink = here._checked_parts()
            for line in cautions((source, sink), self.level):
                self.say(f"{self.name}: {line}")
            planner = here.planner()
            spark = session(here.master, here.spark, warm=True, sees_rows=planner.sees_rows())
            refuse_unproven(planner.unproven(lambda: spark), self.name)
            run = Run(here._job(source, sink, planner, available_now), SparkEngine(spark))
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
        return replace(self, source=source, sink=sink)

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
        return as_source(self.source), as_sink(self.sink)

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
