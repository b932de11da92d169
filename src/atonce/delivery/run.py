"""A pipeline running: claimed, resumed, delivered batch by batch, and brought back after passing trouble."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from atonce.backoff import Backoff
from atonce.delivery.abilities import (
    Accepts,
    Accounts,
    ChecksClaim,
    InputWatch,
    KnownByBorders,
    KnowsWhomItReplaced,
    LedgerApart,
    LoadsRange,
    Mirror,
    MirrorsProgress,
    NoticesCuts,
    Refuses,
    Surroundings,
    TellsWhatWasRead,
    Unwatched,
    Watched,
    borders_of,
    may_go_back,
)
from atonce.delivery.contract import Identity, Sink, Source
from atonce.delivery.deliver import Deliverer, Stopping
from atonce.delivery.engine import Engine, EngineGone, Placement, Planner, Query
from atonce.delivery.events import Claimed, Event, Observer, PassedOver, Retrying, Silent, Stopped
from atonce.delivery.locate import locate
from atonce.delivery.moving.backfill import refuse_short
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
    AtOnceError,
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

STOP_WITHIN_S = 5.0
"""How long a stop waits for the running batch before it is cancelled and aborted."""
ABORT_WITHIN_S = 2.0
NEVER_TWICE = (Guarantee.AT_MOST_ONCE, Guarantee.EFFECTIVELY_ONCE)
_RESTARTS_WITHIN_S = 600.0
_MOST_RESTARTS = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.4, 10.0
_MOST_MOVES = 2
"""A ledger that keeps moving is somebody's doing: then the pipeline stops and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a run needs to know; made by `Pipeline`."""

    name: str
    guarantee: Guarantee
    source: Source
    sink: Sink
    planner: Planner
    mode: str | None = None
    """Spark's output mode; None: what the plan allows."""
    checkpoint: str
    trigger: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    until: Positions | None = None
    """Of a backfill: where it ends."""
    below: str | None = None
    """Of a backfill: `Identity.below`."""
    observer: Observer = field(default_factory=Silent)
    say: Callable[[str], None] = print


class Run:
    """Use: `start()`, then `wait()`; `stop()` from anywhere; `close()` at the end."""

    def __init__(self, job: Job, engine: Engine) -> None:
        self.job = job
        self._engine = engine
        self._stop = threading.Event()
        self.identity = Identity(
            name=job.name,
            instance=uuid.uuid4().hex[:12],
            guarantee=job.guarantee,
            fingerprint=job.fingerprint,
            below=job.below,
            source=job.source,
        )
        self._checkpoint = engine.checkpoint(job.checkpoint, job.source.positions)
        self._sink = job.sink.open(self.identity, engine.session)
        self._claiming = self._closed = False
        self._mirror: Mirror | None = None
        if isinstance(job.source, MirrorsProgress):
            self._mirror = job.source.mirror(job.name, job.sink)
        self._accounts: Accounts | None = None
        if isinstance(job.source, TellsWhatWasRead):
            self._accounts = job.source.accounts(engine.session)
        self._deliverer: Deliverer | None = None
        self._input: InputWatch = Unwatched()
        self._placement = Placement(why="")
        self._on_columns = True
        self._query: Query | None = None
        self.restarts = 0
        self._paused: list[float] = []
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._moved = 0
        """How often the ledger was found elsewhere since a batch was last delivered."""

    def check(self) -> None:
        """What can be known without the ledger: the transform, and its columns against the sink. Before a topic, a
        table or a row of the ledger is made, and before an older instance is fenced."""
        try:
            schema = self.job.planner.gives(self._engine.session)
        except AtOnceError:
            raise
        except Exception as error:
            raise self._transform_fails(error) from error
        if isinstance(self._sink, Accepts):
            self._sink.accepts(schema)

    def start(self) -> Any:
        """Claims the pipeline, compares ledger and checkpoint, and starts the query."""
        self._open_sink()
        self._input = self._watched()
        source_ids = self.job.source.source_ids()
        beginning = self._begin(source_ids)
        self._tell(Claimed(positions=beginning.recorded.positions))
        self._notice_changes(beginning.recorded)
        self._placement = self.job.planner.placed(self._engine.session, self._sink, self._on_columns)
        df = self._built(self._loaded(beginning, source_ids))
        # What was loaded is what the ledger was compared with, not something made again in between.
        refuse_recreated(
            replace(beginning.recorded, source_ids=source_ids), self.job.source.source_ids(), self.job.name
        )
        stateful = self._engine.stateful(df)
        if stateful and beginning.fresh:
            raise LedgerMismatch(
                f"the checkpoint {self.job.checkpoint} is gone and with it the state of {self.job.name!r}, while the "
                f"ledger holds batch {beginning.recorded.batch_id} at {dict(beginning.recorded.positions or {})}. "
                "Going on without state would give wrong results. Next: restore the checkpoint, or begin again with "
                f"`atonce reset {self.job.name} --to earliest`."
            )
        self._deliverer = Deliverer(
            identity=self.identity,
            engine=self._engine,
            sink=self._sink,
            checkpoint=self._checkpoint,
            recorded=beginning.recorded,
            source_ids=source_ids,
            stateful=stateful,
            encoded=self._placement.encoded,
            observer=self.job.observer,
            mirror=self._mirror,
            accounts=self._accounts,
            watch=self._input,
        )
        self._input.look(now=True)
        if self._query is not None:
            self._query.close()
        self._query = self._engine.start(
            df,
            name=self.job.name,
            checkpoint=self.job.checkpoint,
            mode=self.job.mode,
            trigger=self.job.trigger,
            deliver=self._deliverer,
        )
        return self._query.native

    def _loaded(self, beginning: Beginning, source_ids: Mapping[str, str]) -> Any:
        accounts = self._accounts.options({**source_ids, **beginning.recorded.source_ids}) if self._accounts else {}
        kept = (
            self.job.source.bordered(beginning.recorded.borders) if isinstance(self.job.source, KnownByBorders) else {}
        )
        reading = self._checkpoint.reading(drain=bool(self.job.trigger.get("availableNow")))
        options = {**self._placement.options, **accounts, **kept, **reading}
        return self.job.source.load(self._engine.session, beginning.start, options)

    def _open_sink(self) -> None:
        """Every claim has its own sink: a batch of an earlier one that still runs must not find our epoch in it."""
        if self._claiming:
            self._let_go()
            self._sink = self.job.sink.open(self.identity, self._engine.session)
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
        while True:
            failure = self._until_ended()
            if failure is None or isinstance(failure, Stopping) or self._stop.is_set():
                break
            if isinstance(failure, NeedsRows) and self._on_columns:
                self._on_columns = False
                self._tell(Retrying(why=f"{failure}: the query continues in Spark's JVM"))
                self._restart()
                continue
            if isinstance(failure, StartAgain):
                self._tell(Retrying(why=f"{failure}: the query starts again"))
                self._restart()
                continue
            moved = isinstance(failure, LedgerMismatch)
            if self._deliverer is not None and self._deliverer.delivered:
                self._moved = 0
            passing = isinstance(failure, RetriableError | UnreachableError)
            mendable = passing or (moved and not self._checkpoint.has_state())
            if isinstance(failure, UndeliverableRow):
                raise self._located(failure)
            if not mendable or self._too_often() or (moved and self._moved >= _MOST_MOVES):
                raise self._in_our_words(failure)
            self._moved += moved
            self.restarts += 1
            self._wait(failure)
            if self._stop.is_set():
                break
            self._restart()
        self._input.look(now=True)
        # Whoever is stopped has nothing more to wait for: what is not settled now, the next start settles.
        with contextlib.suppress(AtOnceError if self._stop.is_set() else RetriableError):
            if not self._closed:
                self._sink.settle()
        if self.job.until is not None and self._deliverer is not None and not self._stop.is_set():
            refuse_short(self.job.until, self._deliverer.recorded.positions, self.job.name)
        self._tell(Stopped())

    def stop(self) -> None:
        self._stop.set()

    @property
    def query(self) -> Any:
        """The engine's own query of this moment."""
        return self._query.native if self._query is not None else None

    def close(self) -> None:
        with contextlib.suppress(EngineGone):
            if self._query is not None and self._query.is_active():
                self._stop_query()
        if self._query is not None:
            self._query.close()
        self._let_go()
        if self._mirror is not None:
            self._mirror.close()
        if self._accounts is not None:
            self._accounts.close()

    def _restart(self) -> None:
        while True:
            try:
                self.start()
                return
            except (RetriableError, UnreachableError) as error:
                if self._stop.is_set():
                    return
                if self._too_often():
                    raise
                self._wait(error)

    def _too_often(self) -> bool:
        """So many pauses within a while; after a quiet one they begin small again."""
        now = time.monotonic()
        self._paused = [at for at in self._paused if now - at < _RESTARTS_WITHIN_S]
        if not self._paused:
            self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        return len(self._paused) >= _MOST_RESTARTS

    def _wait(self, failure: BaseException) -> None:
        self._paused.append(time.monotonic())
        self._tell(Retrying(why=str(failure), wait_s=self._backoff.pause_s, restarts=self.restarts))
        self._backoff.wait(self._stop)

    def _until_ended(self) -> BaseException | None:
        """Polls the running query; returns why it failed, or None."""
        query = self._query
        if query is None:
            return None
        while True:
            try:
                if not query.is_active():
                    break
            except EngineGone:
                if self._stop.is_set():
                    return None  # whoever stops us may have stopped the engine as well
                raise
            if self._stop.is_set():
                self._stop_query()
                return None
            query.wait(0.2)
            if self._deliverer is not None:
                try:
                    self._deliverer.refresh()
                except LedgerMismatch as moved:
                    self._stop_query()
                    return moved
            self._input.look()
        if self._deliverer is not None and self._deliverer.failure is not None:
            return self._input.meaning(self._deliverer.failure)
        error = query.failure()
        return None if error is None else self._input.meaning(self._engine.meaning(error))

    def _stop_query(self) -> None:
        """Let the running batch finish, for a while; then cancel it, and give its abort a moment."""
        if self._deliverer is not None:
            self._deliverer.stop(STOP_WITHIN_S)
        if self._query is not None:
            self._query.stop()
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
                borders=borders_of(self.job.source, first),
            )
            self._record_first(recorded)
        refuse_recreated(recorded, source_ids, self.job.name)
        if isinstance(self.job.source, NoticesCuts):
            self.job.source.refuse_cut(recorded.positions or {}, recorded.epochs)
        apart = isinstance(self._sink, LedgerApart) and self._sink.ledger_apart and self.job.guarantee in NEVER_TWICE
        back = may_go_back(self.job.source)
        return resume(
            self._checkpoint,
            recorded,
            self.job.name,
            self.job.say,
            still_ours=self._still_ours,
            apart=apart,
            lags=self.job.guarantee is Guarantee.NONE,
            may_go_back=back,
        )

    def _still_ours(self) -> None:
        """`ReplacedError` if not. A ledger that was moved since the claim is answered by the first commit."""
        if isinstance(self._sink, ChecksClaim):
            with contextlib.suppress(LedgerMismatch):
                self._sink.check_claim()

    def _built(self, loaded: Any) -> Any:
        """The transform applied, and its columns checked, before anything starts."""
        if self._placement.encoded:
            return loaded
        try:
            df = self.job.planner.build(loaded)
        except UsageError:
            raise
        except Exception as error:
            raise self._transform_fails(error) from error
        if isinstance(self._sink, Accepts):
            self._sink.accepts(df.schema)
        return df

    def _transform_fails(self, error: Exception) -> UsageError:
        return UsageError(f"the transform of {self.job.name!r} fails: {self._engine.words(error)}")

    def _located(self, failure: UndeliverableRow) -> UndeliverableRow:
        """The same error with the input record's partition and offset, where both ends can tell."""
        sink, source = self._sink, self.job.source
        plan = self._deliverer.plan if self._deliverer is not None else None
        if failure.located or plan is None or plan.stateful:
            return failure
        if not isinstance(sink, Refuses) or not isinstance(source, LoadsRange):
            return failure
        encoded, options = self._placement.encoded, dict(self._placement.options)

        def fails(partition: str, start: int, end: int) -> bool:
            part = source.load_range(self._engine.session, partition, start, end, options)
            return sink.refuses(part if encoded else self.job.planner.build(part), encoded)

        try:
            found = locate(plan, fails)
        except Exception:
            return failure  # the row is bad whatever keeps us from naming its place
        if found is None:
            return failure
        topic, _, partition = found[0].rpartition("/")
        return UndeliverableRow(f"input {topic!r} partition {partition} offset {found[1]}: {failure}")

    def _in_our_words(self, failure: BaseException) -> BaseException:
        if not self._engine.theirs(failure) and not isinstance(failure, TransformFailed):
            return failure
        refused = RefusedError(
            f"a batch of {self.job.name!r} failed: {self._engine.words(failure)}. Nothing of it was recorded as "
            "delivered. Next: correct the transform or the input, and run it again."
        )
        refused.__cause__ = failure
        return refused

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
        if not isinstance(self.job.source, Watched):
            return Unwatched()

        def tell(line: str, count: int) -> None:
            self.job.say(f"{self.job.name}: {line}")
            self._tell(PassedOver(files=count))

        around = Surroundings(
            level=self.job.guarantee, checkpoint=self._checkpoint, spark=self._engine.session, tell=tell
        )
        return self.job.source.watch(around)

    def _notice_changes(self, recorded: Progress) -> None:
        before, now = _parts(recorded.fingerprint), _parts(self.identity.fingerprint)
        changed = [part for part in now if part in before and before[part] != now[part]]
        if changed:
            self.job.say(
                f"{self.job.name}: {' and '.join(changed)} changed since the last run. Kept: progress, at "
                f"{recorded.positions}; what was delivered stays as it is. To process the input again with the new "
                f"definition: `atonce reset {self.job.name} --to earliest`."
            )

    def _tell(self, event: Event) -> None:
        self.job.observer.on_event(replace(event, pipeline=self.job.name))


def _parts(fingerprint: str) -> dict[str, str]:
    """ "source:ab12 transform:cd34 …" as a mapping."""
    return dict(part.split(":", 1) for part in fingerprint.split() if ":" in part)
