"""One attempt at a batch as a Spark job: encode, shuffle the blobs, send; watched by the driver's own clock."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import Any

from atonce.errors import AttemptAborted
from atonce.sinks.arrow_job import ArrowJobs
from atonce.sinks.contract import Batch
from atonce.sinks.errand import given
from atonce.sinks.kafka_blobs import BLOB_SCHEMA, Encoder
from atonce.sinks.kafka_lease import LeaseServer
from atonce.sinks.kafka_send import OnErrand, Report, SendTask, read_reports
from atonce.sinks.kafka_tally import check

_TIME_SHARE = 0.8
"""How much of the transaction's time-out a batch may use before the driver aborts it by its own clock."""
_LOOK_EVERY_S = 0.05


class OutOfTime(AttemptAborted):
    """The batch would outlive its transaction; it was cancelled before the broker could abort it."""


class Watch:
    """Cancels the attempt's job when a partition was asked for twice, or when the transaction's time runs out."""

    def __init__(self, spark: Any, lease: LeaseServer | None, timeout_ms: int | None, contest: bool) -> None:
        self._context = spark.sparkContext
        self._lease = lease
        self._timeout_s = timeout_ms / 1000 * _TIME_SHARE if timeout_ms else None
        self._contest = contest
        self._tag = f"atonce-{uuid.uuid4().hex}"
        self._over = threading.Event()
        self.why: AttemptAborted | None = None

    def __enter__(self) -> Watch:
        self._context.addJobTag(self._tag)
        if self._lease is not None:
            threading.Thread(target=self._look, name="atonce-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._context.removeJobTag(self._tag)

    def _look(self) -> None:
        while self._lease is not None and not self._over.wait(_LOOK_EVERY_S):
            began = self._lease.first_grant_at
            if self._contest and self._lease.contested is not None:
                topic, partition = self._lease.contested
                self.why = AttemptAborted(
                    f"a second attempt of a task asked to write {topic}/{partition}: the batch runs again"
                )
            elif began is not None and self._timeout_s is not None and time.monotonic() - began > self._timeout_s:
                self.why = OutOfTime(
                    f"the batch was not written within {self._timeout_s:.0f} s of its transaction's time"
                )
            if self.why is not None:
                self._lease.revoke()
                self._context.cancelJobsWithTag(self._tag)
                return


class Attempt:
    def __init__(self, batch: Batch, jobs: ArrowJobs, encoder: Encoder, task: SendTask, errand: dict[str, Any]) -> None:
        self._batch = batch
        self._jobs = jobs
        self._encoder = encoder.on(errand)
        self._task = task
        # A stateful batch keeps its partitions: its state stores are bound to them.
        self._whole = batch.plan.small() and not batch.plan.stateful
        self._errand = {**errand, "whole": self._whole}

    def run(self, watch: Watch) -> Report:
        """Runs the job and checks that it adds up. Raises what made it fail, or `AttemptAborted`."""
        with watch, given(self._batch.df.sparkSession, self._errand):
            try:
                rows = self._sent().collect()
            except Exception as error:
                raise (watch.why or error) from error
        if watch.why is not None:
            raise watch.why
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
            return self._jobs.map(df.coalesce(1), OnErrand(sender), BLOB_SCHEMA)
        blobs = df if self._batch.encoded else self._jobs.map(df, self._encoder, BLOB_SCHEMA)
        placed = blobs.repartitionById(self._encoder.targets.slots, "slot")
        return self._jobs.map(placed, OnErrand(self._task), BLOB_SCHEMA)
