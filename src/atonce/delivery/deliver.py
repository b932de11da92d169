"""One micro-batch delivered: the plan against the ledger, then the two writes in the order that the guarantee says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from atonce.backoff import Backoff
from atonce.delivery.abilities import Accounts, ChecksClaim, InputWatch, Unwatched, may_go_back
from atonce.delivery.contract import Batch, Identity, OpenSink
from atonce.delivery.engine import Checkpoint, Engine
from atonce.delivery.events import Aborted, Delivered, Event, Observer, Planned, Retrying, Skipped
from atonce.delivery.progress import COVERS, REMEMBERED_CUTS, Plan, Positions, Progress
from atonce.delivery.resume import refuse_recreated
from atonce.delivery.rule import Decision, decide
from atonce.delivery.two_writes import TwoWrites
from atonce.errors import AtOnceError, OutcomeUnknown, RetriableError
from atonce.guarantee import ORDERS, Guarantee

RETRY_FOR_S = 180.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0
LOOK_AFTER_S = 5.0
"""An instance without input would not find out that it was replaced; nobody should have to wonder which one runs."""
REFRESH_AFTER_S = 12 * 3600.0
"""Offsets of a group without members expire after 7 days by default: a quiet pipeline commits again well before."""


class Stopping(AtOnceError):
    """The pipeline was told to stop; this batch was not begun."""


class Deliverer:
    """What `foreachBatch` calls, in the driver. Remembers what the ledger holds and why it failed, if it did."""

    def __init__(
        self,
        *,
        identity: Identity,
        engine: Engine,
        sink: OpenSink,
        checkpoint: Checkpoint,
        recorded: Progress,
        source_ids: dict[str, str],
        stateful: bool,
        encoded: bool,
        observer: Observer,
        mirror: Callable[[Progress], None] | None = None,
        accounts: Accounts | None = None,
        watch: InputWatch | None = None,
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._sink = sink
        self._checkpoint = checkpoint
        self.recorded = recorded
        self._source_ids = source_ids
        self._stateful = stateful
        self._encoded = encoded
        self._observer = observer
        self._mirror = mirror
        self._accounts = accounts
        self._input: InputWatch = watch or Unwatched()
        self._lock = threading.Lock()
        self._last_commit = self._last_look = time.monotonic()
        self._stop = threading.Event()
        self._retired = False
        self.delivered = 0
        """Batches, by this one."""
        self.failure: BaseException | None = None
        self.plan: Plan | None = None
        """The batch that was called last."""

    def __call__(self, df: Any, batch_id: int) -> None:
        try:
            with self._lock:
                try:
                    self._deliver(df, batch_id)
                finally:
                    if self._retired:
                        self._sink.close()
        except BaseException as error:
            self.failure = self._engine.meaning(error)
            raise self._engine.brief(error) from None

    def stop(self, within_s: float) -> None:
        """Begin no further batch; wait for the running one, for a while."""
        self._stop.set()
        if self._lock.acquire(timeout=within_s):
            self._lock.release()

    def retire(self, within_s: float) -> None:
        """Another takes over, with a sink and a claim of its own: this one's sink is closed when nobody uses it."""
        self._stop.set()
        self._retired = True
        if self._lock.acquire(timeout=within_s):
            try:
                self._sink.close()
            finally:
                self._lock.release()

    def refresh(self) -> None:
        """For quiet times, called often: see that nobody has taken over, and commit again before offsets expire."""
        now = time.monotonic()
        if now - max(self._last_commit, self._last_look) < LOOK_AFTER_S or not self._lock.acquire(blocking=False):
            return
        try:
            self._last_look = now
            if isinstance(self._sink, ChecksClaim):
                with contextlib.suppress(RetriableError):  # the next look, or the next batch, will tell
                    self._sink.check_claim()
            if now - self._last_commit < REFRESH_AFTER_S:
                return
            # Its number is used up, also when the answer is lost.
            self.recorded = again = replace(self.recorded, sequence=self.recorded.sequence + 1)
            with contextlib.suppress(RetriableError):  # days are left for another try
                self._sink.progress(again)
                self._accept(again)
        finally:
            self._lock.release()

    def _deliver(self, df: Any, batch_id: int) -> None:
        if self._stop.is_set():
            raise Stopping("the pipeline is stopping")
        query_id = self._engine.query_id(df)
        plan = self.plan = self._checkpoint.plan(query_id, batch_id, self._stateful)
        self._tell(Planned(batch_id=batch_id, start=plan.start, end=plan.end))
        refuse_recreated(self.recorded, plan.source_ids, self._identity.name)
        if plan.end == {}:  # no partition is there yet: nothing to deliver, and a ledger on one has no place to stand
            self._pass_over(df, plan)
            return
        lags, source = self._identity.guarantee is Guarantee.NONE, self._identity.source
        if decide(plan, self.recorded, lags=lags, may_go_back=may_go_back(source)) is Decision.SKIP:
            self._pass_over(df, plan)
            return
        self._input.before(batch_id, query_id)
        with (
            self._accounts.reading(self._engine.session_of(df), self.recorded)
            if self._accounts
            else contextlib.nullcontext()
        ):
            writes = self._in_order(plan, self._progress_after(plan), df)
        self._accept(writes.recorded)
        self.delivered += 1
        self._tell(Delivered(batch_id=batch_id, rows=writes.rows, read=self._read(plan, writes.rows)))

    def _pass_over(self, df: Any, plan: Plan) -> None:
        if not self._encoded and (self._stateful or self._checkpoint.has_state()):
            # Its state store must advance all the same, or the checkpoint becomes unusable. Where the sink's part
            # runs inside the source there is no state, and that part must not run without its attempt.
            self._engine.compute(df)
        self._input.skipped(plan.batch_id)
        self._tell(Skipped(batch_id=plan.batch_id))

    def _read(self, plan: Plan, rows: int | None) -> dict[str, int]:
        """What the batch read, where all its tasks told; and what the transform filtered out, where rows stay rows."""
        read = self._accounts.summary(plan) if self._accounts else None
        if read is None:
            return {}
        filtered = read["records"] - rows if rows is not None and not self._stateful else -1
        return {**read, "filtered": filtered} if filtered >= 0 else read

    def _progress_after(self, plan: Plan) -> Progress:
        before = self.recorded
        same_query = before.query_id == plan.query_id
        return Progress(
            instance=self._identity.instance,
            query_id=plan.query_id,
            batch_id=plan.batch_id,
            positions=None if plan.end is None else {**(before.positions or {}), **plan.end},
            source_ids=self._ids_after(plan),
            fingerprint=self._identity.fingerprint,
            sequence=before.sequence + 1,
            epochs=_where_it_stands_still(before, plan),
            first=_with_new_partitions(before.first, plan),
            recent=(*(before.recent if same_query else ()), plan.cut())[-REMEMBERED_CUTS:],
            borders={**before.borders, **plan.borders},
        )

    def _ids_after(self, plan: Plan) -> dict[str, str]:
        """Also of topics that a pattern found later, and of those whose positions are kept though they are gone."""
        before = {name: known for name, known in self.recorded.source_ids.items() if name != COVERS}
        return {**before, **self._source_ids, **plan.source_ids}

    def _in_order(self, plan: Plan, progress: Progress, df: Any) -> TwoWrites:
        """The two writes, in order; passing trouble is waited out, within a limit."""
        batch = Batch(
            df=df,
            plan=plan,
            encoded=self._encoded,
            watch=self._watcher(plan.batch_id),
            complete=lambda progress: self._accounts.completed(plan, progress) if self._accounts else progress,
            aside=lambda: self._accounts.aside(plan) if self._accounts else (),
            again_from=None if self.delivered else self.recorded.positions,
        )
        writes = TwoWrites(self._sink, batch, progress, self._tell)
        order = ORDERS[self._identity.guarantee]
        backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S, RETRY_FOR_S)
        while True:
            try:
                order(writes)
                return writes
            except Exception as raised:
                error = self._engine.meaning(raised)
                if writes.recorded_first:  # whoever keeps us and calls again must find it recorded
                    self.recorded = writes.recorded
                if not isinstance(error, RetriableError) or self._stop.is_set():
                    raise error from raised
                if writes.given_up:
                    self._tell(
                        Aborted(batch_id=plan.batch_id, why=f"not repeated, since its progress is recorded: {error}")
                    )
                    return writes
                if backoff.over and not isinstance(error, OutcomeUnknown):
                    raise error from raised
                doubt = isinstance(error, OutcomeUnknown)
                self._tell(Retrying(batch_id=plan.batch_id, why=str(error), wait_s=backoff.pause_s, in_doubt=doubt))
                backoff.wait(self._stop)

    def _accept(self, progress: Progress) -> None:
        self.recorded = progress
        self._last_commit = time.monotonic()
        if self._mirror is not None:
            self._mirror(progress)

    def _watcher(self, batch_id: int) -> Callable[[Event], None]:
        return lambda event: self._tell(replace(event, batch_id=batch_id))

    def _tell(self, event: Event) -> None:
        self._observer.on_event(replace(event, pipeline=self._identity.name))


def _where_it_stands_still(before: Progress, plan: Plan) -> Positions:
    """Leader epochs of partitions that the batch does not move; of the others, reading them will tell."""
    end, held = plan.end or {}, before.positions or {}
    return {
        partition: epoch
        for partition, epoch in before.epochs.items()
        if end.get(partition, held.get(partition)) == held.get(partition)
    }


def _with_new_partitions(first: Positions | None, plan: Plan) -> Positions | None:
    """Where the pipeline began, also in partitions that came later."""
    if first is None or plan.end is None:
        return first
    return {**{partition: (plan.start or {}).get(partition, 0) for partition in plan.end}, **first}
