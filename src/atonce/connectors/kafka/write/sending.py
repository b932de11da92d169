"""One attempt at a batch as a Spark job: encode, shuffle the blobs, send; watched by the driver's own clock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from atonce.connectors.kafka.write.blobs import BLOB_SCHEMA, Encoder
from atonce.connectors.kafka.write.lease import Grants, LeaseServer
from atonce.connectors.kafka.write.send import Mode, OfAttempt, Report, SendTask, read_reports
from atonce.connectors.kafka.write.tally import check
from atonce.delivery.contract import Batch
from atonce.errors import AttemptAborted
from atonce.spark.arrow_job import ArrowJobs
from atonce.spark.attempt import Attempt, given
from atonce.spark.stage_retries import StageRetries, tagged
from atonce.spark.versions import repartitioned

_TIME_SHARE = 0.8
"""How much of the transaction's time-out a batch may use before the driver aborts it by its own clock."""
_LOOK_EVERY_S = 0.05


class OutOfTime(AttemptAborted):
    """The batch would outlive its transaction; it was cancelled before the broker could abort it."""


class Watch:
    """Over one attempt's job: its tasks may write while it lasts, and not a moment longer.

    Cancels the job when a task failed that had begun to write, or when the transaction's time runs out.
    """

    def __init__(
        self,
        spark: Any,
        lease: LeaseServer | None,
        attempt: str,
        mode: Mode,
        timeout_ms: int | None = None,
        admit: Callable[[str, int], None] | None = None,
    ) -> None:
        self._spark = spark
        self._lease = lease
        self._attempt = attempt
        self._grants: Grants | None = None
        self._mode = mode
        self._admit = admit
        self._timeout_s = timeout_ms / 1000 * _TIME_SHARE if timeout_ms else None
        self._stages = StageRetries(spark)
        self._stack = contextlib.ExitStack()
        self._tag = ""
        self._over = threading.Event()
        self.why: AttemptAborted | None = None

    def __enter__(self) -> Watch:
        self._tag = self._stack.enter_context(tagged(self._spark))
        if self._lease is not None:
            # What went out without a transaction cannot be taken back, so there it is asked before, and not after.
            approve = self._computed_once if self._mode == "forget" else None
            self._grants = self._lease.open(self._attempt, approve, self._admit)
            self._stack.callback(self._lease.revoke, self._grants)
            threading.Thread(target=self._look, name="atonce-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stack.close()

    def check(self) -> None:
        """After the job: raises `AttemptAborted` if it was cancelled, or if Spark ran a part of it twice."""
        if self.why is not None:
            raise self.why
        if self._mode in ("transaction", "idempotent"):
            self._stages.refuse(self._tag)

    def _computed_once(self) -> bool:
        return not self._stages.seen(self._tag)

    def _look(self) -> None:
        while (lease := self._lease) is not None and (held := self._grants) and not self._over.wait(_LOOK_EVERY_S):
            began = held.first_grant_at
            if self._mode == "transaction" and held.contested is not None:
                topic, partition = held.contested
                self.why = AttemptAborted(
                    f"a second attempt of a task asked to write {topic}/{partition}: the batch runs again"
                )
            elif held.refused is not None:
                self.why = AttemptAborted(f"a partition could not be added to the transaction: {held.refused}")
            elif began is not None and self._timeout_s is not None and time.monotonic() - began > self._timeout_s:
                self.why = OutOfTime(
                    f"the batch was not written within {self._timeout_s:.0f} s of its transaction's time"
                )
            if self.why is not None:
                lease.revoke(held)
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
                return


class Sending:
    """The job of one attempt."""

    def __init__(self, batch: Batch, jobs: ArrowJobs, encoder: Encoder, task: SendTask, attempt: Attempt) -> None:
        self._batch = batch
        self._jobs = jobs
        self._encoder = encoder.on(attempt)
        self._task = task
        # A stateful batch keeps its partitions: its state stores are bound to them.
        self._whole = batch.plan.small() and not batch.plan.stateful
        self._attempt = replace(attempt, whole=self._whole)

    def run(self, watch: Watch) -> Report:
        """Runs the job and checks that it adds up. Raises what made it fail, or `AttemptAborted`."""
        with watch, given(self._batch.df.sparkSession, self._attempt):
            try:
                rows = self._sent().collect()
            except Exception as error:
                raise (watch.why or error) from error
        watch.check()
        report = read_reports(rows)
        if not report.notes:
            check(report.tallies, self._encoder.targets.slots)
        return report

    def _sent(self) -> Any:
        df = self._batch.df
        if self._whole and self._batch.encoded:
            return df  # one task of the source reads all of it, and sends it, too (`FusedSend`)
        if self._whole:
            sender = replace(self._task, encoder=replace(self._encoder, spool=None, whole=True))
            return self._jobs.map(df.coalesce(1), OfAttempt(sender), BLOB_SCHEMA)
        blobs = df if self._batch.encoded else self._jobs.map(df, self._encoder, BLOB_SCHEMA)
        placed = repartitioned(blobs, self._encoder.targets.slots, "slot")
        return self._jobs.map(placed, OfAttempt(self._task), BLOB_SCHEMA)
