"""Whether Spark ran a stage of a job again: then its tasks may have read two computations of the same rows.

A task whose input was lost with an executor has Spark compute it anew. A transform that is not quite deterministic puts
some rows elsewhere the second time: with those that another task has read before, so that they come twice, or with
those that nobody reads any more. So nothing of such a job is delivered, and the batch runs again as a whole.

Sessions of ours allow a stage one attempt: the job fails instead. It can still be run again before anybody missed
anything, when an executor is lost, and somebody else's session allows more; there Spark is asked.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from atonce.errors import AttemptAborted

SETTING = "spark.stage.maxConsecutiveAttempts"
SPARKS_OWN = "4"


class StageRetries:
    """In the driver, for one Spark session."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        master = str(self._context.master)
        local = master == "local" or master.startswith("local[")
        self._never = local and spark.conf.get(SETTING, SPARKS_OWN) == "1"

    def seen(self, tag: str) -> bool:
        """Whether a stage of the jobs with this tag, running or ended, was run more than once, as far as is known."""
        if self._never:
            return False
        try:
            return self._told(tag)
        except Exception:
            return True  # Spark is busy and does not tell

    def _told(self, tag: str) -> bool:
        scala = self._context._jsc.sc()
        scala.listenerBus().waitUntilEmpty()  # what the tracker knows comes to it by events
        tracker = scala.statusTracker()
        for job in tracker.getJobIdsForTag(tag):
            known = tracker.getJobInfo(job)
            if known.isEmpty():
                return True
            for stage in known.get().stageIds():
                info = tracker.getStageInfo(stage)
                if info.isEmpty() or info.get().currentAttemptId() > 0:
                    return True
        return False

    def refuse(self, tag: str) -> None:
        if self.seen(tag):
            raise AttemptAborted(
                "Spark ran a stage of this batch again, and what it computed twice may differ. Nothing of it is "
                "committed, the batch runs again."
            )


@contextlib.contextmanager
def tagged(spark: Any) -> Iterator[str]:
    """Jobs that this thread starts meanwhile carry a tag of their own."""
    tag = f"atonce-{uuid.uuid4().hex}"
    spark.sparkContext.addJobTag(tag)
    try:
        yield tag
    finally:
        spark.sparkContext.removeJobTag(tag)
