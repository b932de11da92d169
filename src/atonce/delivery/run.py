"""A pipeline running: claimed, resumed, delivered batch by batch, and brought back after passing trouble."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from atonce.connectors.files.watch import FileWatch
from atonce.connectors.kafka.mirror import Mirror
from atonce.connectors.kafka.read.accounts import Accounts
from atonce.connectors.kafka.read.stream import register
from atonce.delivery.contract import Identity, KnowsWhomItReplaced, OpenSink, Sink, Source
from atonce.delivery.deliver import Deliverer, Stopping
from atonce.delivery.events import Event, Observer, Silent, Step
from atonce.delivery.input_watch import InputWatch, Unwatched
from atonce.delivery.locate import locate
from atonce.delivery.progress import Positions, Progress
from atonce.delivery.resume import (
    Beginning,
    planned_words,
    refuse_recreated,
    refuse_without_ledger,
    resume,
    waits_for_input,
)
from atonce.errors import (
    LedgerMismatch,
    NeedsRows,
    RefusedError,
    RetriableError,
    StartAgain,
    TransformFailed,
    UndeliverableRow,
    UnreachableError,
    UsageError,
)
from atonce.guarantee import Guarantee
from atonce.spark.checkpoint.manager import quick_on_a_local_disk
from atonce.spark.checkpoint.plans import Checkpoint
from atonce.spark.statefulness import default_mode, is_stateful
from atonce.spark.task_errors import in_words, of_job

STOP_WITHIN_S = 5.0
"""How long a stop waits for the running batch before it is cancelled and aborted."""
ABORT_WITHIN_S = 2.0
NEVER_TWICE = (Guarantee.AT_MOST_ONCE, Guarantee.EFFECTIVELY_ONCE)
_RESTARTS_WITHIN_S = 600.0
_MOST_RESTARTS = 10
_MOST_MOVES = 2
"""A ledger that keeps moving is somebody's doing: then the pipeline stops and says so."""


class SparkGone(RefusedError):
    """Spark's JVM has ended under a running pipeline."""


@dataclass(frozen=True, slots=True)
class Fused:
    """What runs inside the source's tasks, right behind the decoder, as options for the source."""

    options: dict[str, str] = field(default_factory=dict)
    encoded: bool = False
    """The whole transform and the sink's own function are part of it: what the source gives are no longer rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a run needs to know; made by `Pipeline`."""

    name: str
    guarantee: Guarantee
    source: Source
    sink: Sink
    build: Callable[[Any, Any], Any]
    """(loaded DataFrame, open sink) → the DataFrame to deliver."""
    fuse: Callable[[Any, OpenSink, bool], Fused]
    """(Spark session, open sink, whether the transform may run on columns) → what runs inside the source's tasks."""
    mode: str | None = None
    """Spark's output mode; None: what the plan allows."""
    checkpoint: str
    trigger: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    input_servers: str | None = None
    input_config: dict[str, str] = field(default_factory=dict)
    input_partitions: int | None = None
    refuse_cut: Callable[[Positions, Positions], None] = lambda _positions, _epochs: None
    """(the ledger's positions, its leader epochs) → `DataLossError` if the input's logs no longer hold them."""
    mirrored: bool = False
    """The ledger is not in the input's cluster, so the group's offsets there are kept as a mirror for lag tools."""
    observer: Observer = field(default_factory=Silent)
    say: Callable[[str], None] = print


class Run:
    """Use: `start()`, then `wait()`; `stop()` from anywhere; `close()` at the end."""

    def __init__(self, job: Job, spark: Any) -> None:
        self.job = job
        self._spark = spark
        self._stop = threading.Event()
        self.identity = Identity(
            name=job.name,
            instance=uuid.uuid4().hex[:12],
            guarantee=job.guarantee,
            fingerprint=job.fingerprint,
            input_servers=job.input_servers,
            input_config=job.input_config,
            input_partitions=job.input_partitions,
        )
        self._checkpoint = Checkpoint(job.checkpoint, spark, job.source.positions)
        self._sink = job.sink.open(self.identity, spark)
        self._claiming = self._closed = False
        self._mirror = (
            Mirror(job.name, job.input_servers, job.input_config) if job.mirrored and job.input_servers else None
        )
        self._accounts = Accounts.for_session(spark) if job.input_servers else None
        self._deliverer: Deliverer | None = None
        self._input: InputWatch = Unwatched()
        self._fused = Fused()
        self._on_columns = True
        self.query: Any = None
        self.restarts = 0
        self._moved = 0
        """How often the ledger was found elsewhere since a batch was last delivered."""

    def start(self) -> Any:
        """Claims the pipeline, compares ledger and checkpoint, and starts the query."""
        self._open_sink()
        self._input = self._watched()
        source_ids = self.job.source.source_ids()
        beginning = self._begin(source_ids)
        self._tell(Step.CLAIMED, {"positions": beginning.recorded.positions})
        self._notice_changes(beginning.recorded)
        self._fused = self.job.fuse(self._spark, self._sink, self._on_columns)
        register(self._spark)
        options = {**self._fused.options, **self._source_options({**source_ids, **beginning.recorded.source_ids})}
        df = self._built(self.job.source.load(self._spark, beginning.start, options))
        # What was loaded is what the ledger was compared with, not something made again in between.
        refuse_recreated(
            replace(beginning.recorded, source_ids=source_ids), self.job.source.source_ids(), self.job.name
        )
        stateful = is_stateful(df)
        if stateful and beginning.fresh:
            raise LedgerMismatch(
                f"the checkpoint {self.job.checkpoint} is gone and with it the state of {self.job.name!r}, while "
                f"the ledger holds "
                f"batch {beginning.recorded.batch_id} at {dict(beginning.recorded.positions or {})}. Going on "
                f"without state would give wrong "
                f"results. Next: restore the checkpoint, or begin again with `atonce reset {self.job.name} --to "
                f"earliest`."
            )
        self._deliverer = Deliverer(
            identity=self.identity,
            sink=self._sink,
            checkpoint=self._checkpoint,
            recorded=beginning.recorded,
            source_ids=source_ids,
            stateful=stateful,
            encoded=self._fused.encoded,
            observer=self.job.observer,
            mirror=self._mirror,
            accounts=self._accounts,
            watch=self._input,
        )
        writer = df.writeStream.queryName(self.job.name).foreachBatch(self._deliverer)
        writer = writer.option("checkpointLocation", self.job.checkpoint).outputMode(self.job.mode or default_mode(df))
        if self.job.trigger:
            writer = writer.trigger(**self.job.trigger)
        self._input.look(now=True)
        with quick_on_a_local_disk(self._spark, self.job.checkpoint):
            self.query = writer.start()
        return self.query

    def _open_sink(self) -> None:
        """Every claim has its own sink: a batch of an earlier one that still runs must not find our epoch in it."""
        if self._claiming:
            self._let_go()
            self._sink = self.job.sink.open(self.identity, self._spark)
            self._closed = False
        self._claiming = True

    def _let_go(self) -> None:
        """Of the sink; a batch that still runs does it when it is over."""
        if self._closed:
            return
        self._closed = True
        deliverer, self._deliverer = self._deliverer, None
        if deliverer is not None:
            deliverer.retire(ABORT_WITHIN_S)
        else:
            self._sink.close()

    def wait(self) -> None:
        """Until everything is delivered (available now), `stop` is called, or an error that waiting cannot mend."""
        since: list[float] = []
        while True:
            failure = self._until_ended()
            if failure is None or isinstance(failure, Stopping) or self._stop.is_set():
                break
            if isinstance(failure, NeedsRows) and self._on_columns:
                self._on_columns = False
                self._tell(Step.RETRYING, {"why": f"{failure}: the query goes on in Spark's JVM"})
                self._restart([])
                continue
            if isinstance(failure, StartAgain):
                self._tell(Step.RETRYING, {"why": f"{failure}: the query starts again"})
                self._restart([])
                continue
            now = time.monotonic()
            since = [at for at in since if now - at < _RESTARTS_WITHIN_S]
            moved = isinstance(failure, LedgerMismatch)
            if self._deliverer is not None and self._deliverer.delivered:
                self._moved = 0
            passing = isinstance(failure, RetriableError | UnreachableError)
            mendable = passing or (moved and not self._checkpoint.has_state())
            if isinstance(failure, UndeliverableRow):
                raise self._located(failure)
            if not mendable or len(since) >= _MOST_RESTARTS or (moved and self._moved >= _MOST_MOVES):
                raise self._in_our_words(failure)
            self._moved += moved
            since.append(now)
            self.restarts += 1
            wait_s = min(10.0, 0.2 * 2 ** len(since))
            self._tell(Step.RETRYING, {"why": str(failure), "wait_s": wait_s, "restarts": self.restarts})
            self._stop.wait(wait_s)
            if self._stop.is_set():
                break
            self._restart(since)
        self._input.look(now=True)
        with contextlib.suppress(RetriableError):
            self._sink.settle()
        self._tell(Step.STOPPED, {})

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        with contextlib.suppress(SparkGone):
            if self.query is not None and self._is_active():
                self._stop_query()
        self._let_go()
        if self._mirror is not None:
            self._mirror.close()
        if self._accounts is not None:
            self._accounts.close()

    def _restart(self, since: list[float]) -> None:
        while True:
            try:
                self.start()
                return
            except (RetriableError, UnreachableError) as error:
                if len(since) >= _MOST_RESTARTS or self._stop.is_set():
                    raise
                since.append(time.monotonic())
                self._tell(Step.RETRYING, {"why": str(error), "restarts": self.restarts})
                self._stop.wait(min(10.0, 0.2 * 2 ** len(since)))

    def _until_ended(self) -> BaseException | None:
        """Polls the running query; returns why it failed, or None."""
        while True:
            try:
                if not self._is_active():
                    break
            except SparkGone:
                if self._stop.is_set():
                    return None  # whoever stops us may have stopped the JVM as well
                raise
            if self._stop.is_set():
                self._stop_query()
                return None
            with contextlib.suppress(Exception):
                self.query.awaitTermination(0.2)
            if self._deliverer is not None:
                try:
                    self._deliverer.refresh()
                except LedgerMismatch as moved:
                    self._stop_query()
                    return moved
            self._input.look()
        if self._deliverer is not None and self._deliverer.failure is not None:
            return self._input.meaning(self._deliverer.failure)
        error = self.query.exception()
        return None if error is None else self._input.meaning(of_job(error))

    def _is_active(self) -> bool:
        try:
            return bool(self.query.isActive)
        except Exception as error:
            raise SparkGone(
                f"the JVM under {self.job.name!r} does not answer: it was killed, or ran out of memory. The batch that "
                "was running is aborted by the next start. Next: start the pipeline again; if it happens again, give "
                "Spark more memory (spark.driver.memory)."
            ) from error

    def _stop_query(self) -> None:
        """Let the running batch finish, for a while; then cancel it, and give its abort a moment."""
        if self._deliverer is not None:
            self._deliverer.stop(STOP_WITHIN_S)
        with contextlib.suppress(Exception):  # Spark gives up waiting after spark.sql.streaming.stopTimeout
            self.query.stop()
        if self._deliverer is not None:
            self._deliverer.stop(ABORT_WITHIN_S)

    def _begin(self, source_ids: dict[str, str]) -> Beginning:
        try:
            recorded = self._sink.claim()
        except LedgerMismatch as error:
            raise LedgerMismatch(f"{error} {planned_words(self._checkpoint)}".rstrip()) from None
        replaced = self._sink.replaced if isinstance(self._sink, KnowsWhomItReplaced) else None
        self.identity = replace(self.identity, claimed=True, replaced=replaced)
        if recorded is None:
            waits = waits_for_input(self._checkpoint)
            if not waits:
                refuse_without_ledger(self._checkpoint, self.job.name, source_ids)
            first = {} if waits else self.job.source.first_positions()
            recorded = Progress(
                instance=self.identity.instance,
                query_id="",
                batch_id=-1,
                positions=first,
                source_ids=source_ids,
                fingerprint=self.identity.fingerprint,
                sequence=1,
                first=first,
            )
            self._record_first(recorded)
        refuse_recreated(recorded, source_ids, self.job.name)
        self.job.refuse_cut(recorded.positions or {}, recorded.epochs)
        apart = getattr(self._sink, "ledger_apart", False) and self.job.guarantee in NEVER_TWICE
        return resume(self._checkpoint, recorded, self.job.name, self.job.say, apart=apart)

    def _source_options(self, topic_ids: Mapping[str, str]) -> dict[str, str]:
        """What our own Kafka source is told: which logs the positions belong to, and where to tell what was read."""
        if self._accounts is None:
            return {}
        return {"atonce.topicIds": json.dumps(dict(topic_ids), sort_keys=True), **self._accounts.options()}

    def _built(self, loaded: Any) -> Any:
        """The transform applied, and its columns checked, before anything starts."""
        if self._fused.encoded:
            return loaded
        try:
            df = self.job.build(loaded, self._sink)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"the transform of {self.job.name!r} fails: {in_words(error)}") from error
        accepts = getattr(self._sink, "accepts", None)
        if accepts is not None:
            accepts(df.schema)
        return df

    def _located(self, failure: UndeliverableRow) -> UndeliverableRow:
        """The same error with the input record's partition and offset, where both ends can tell."""
        refuses, load_range = getattr(self._sink, "refuses", None), getattr(self.job.source, "load_range", None)
        plan = self._deliverer.plan if self._deliverer is not None else None
        if failure.located or refuses is None or load_range is None or plan is None or plan.stateful:
            return failure
        fused = self._fused

        def fails(place: str, start: int, end: int) -> bool:
            part = load_range(self._spark, place, start, end, fused.options)
            return bool(refuses(part if fused.encoded else self.job.build(part, self._sink), fused.encoded))

        try:
            found = locate(plan, fails)
        except Exception:
            return failure  # the row is bad whatever keeps us from naming its place
        if found is None:
            return failure
        topic, _, partition = found[0].rpartition("/")
        return UndeliverableRow(f"input {topic!r} partition {partition} offset {found[1]}: {failure}")

    def _in_our_words(self, failure: BaseException) -> BaseException:
        theirs = _from_spark(failure) or isinstance(failure, TransformFailed)
        if not theirs:
            return failure
        told = RefusedError(
            f"a batch of {self.job.name!r} failed: {in_words(failure)}. Nothing of it was recorded as delivered. "
            "Next: correct the transform or the input, and run it again."
        )
        told.__cause__ = failure
        return told

    def _record_first(self, first: Progress) -> None:
        for left in reversed(range(5)):
            try:
                self._sink.progress(first)
                return
            except RetriableError:
                if not left:
                    raise
                time.sleep(0.5)

    def _watched(self) -> InputWatch:
        files = self.job.source.watched_files()
        if files is None:
            return Unwatched()

        def tell(line: str, count: int) -> None:
            self.job.say(f"{self.job.name}: {line}")
            self._tell(Step.PASSED_OVER, {"files": count})

        return FileWatch(
            path=files.path,
            options=files.options,
            level=self.job.guarantee,
            checkpoint=self._checkpoint,
            spark=self._spark,
            tell=tell,
        )

    def _notice_changes(self, recorded: Progress) -> None:
        before, now = _parts(recorded.fingerprint), _parts(self.identity.fingerprint)
        changed = [part for part in now if part in before and before[part] != now[part]]
        if changed:
            self.job.say(
                f"{self.job.name}: {' and '.join(changed)} changed since the last run. Kept: progress, at "
                f"{recorded.positions}; what was delivered stays as it is. To process the input again with the new "
                f"definition: `atonce reset {self.job.name} --to earliest`."
            )

    def _tell(self, step: Step, facts: dict[str, Any]) -> None:
        self.job.observer.on_event(Event(step=step, pipeline=self.job.name, facts=facts))


def _from_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark", "py4j"))


def _parts(fingerprint: str) -> dict[str, str]:
    """ "source:ab12 transform:cd34 …" as a mapping."""
    return dict(part.split(":", 1) for part in fingerprint.split() if ":" in part)
