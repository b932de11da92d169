"""F1, F2, F5, F29: the publishing half: files or a table into Kafka."""

from __future__ import annotations

import time

from atonce.connectors.contract import GivesOldestLast, NotFired
from atonce.delivery.events import Step
from atonce.verify.faults.process.kills import QUICK_TIMER, SLOW_TIMER, kill_at_step, kill_when_recorded
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action

PLANNING_S = 4.0
"""More than a source takes to start and plan, less than the time for which ours waits for an open transaction."""


@scenario("F1", "recorded-not-published", short=True, options=QUICK_TIMER)
def recorded_not_published(scene: Scene) -> None:
    kill_when_recorded(scene)


@scenario("F2", "published-not-recorded", short=True, options=SLOW_TIMER)
def published_not_recorded(scene: Scene) -> None:
    kill_at_step(scene, Step.OUTPUT_DONE)


@scenario("F5", "half-a-file", short=True, options=SLOW_TIMER)
def half_a_file(scene: Scene) -> None:
    """Killed between two Produce requests of one batch: the first part of the file is in the log."""
    scene.inject("produce", action=Action.CALL_AFTER, nth=1, topic=scene.names.output, call=scene.kill_subject)


@scenario("F29", "older-row-later")
def older_row_later(scene: Scene) -> None:
    """Rows of an older transaction become visible after newer ones were there to be read."""
    if not isinstance(scene.feed, GivesOldestLast):
        raise NotFired("the source's rows cannot become visible in another order")
    commit = scene.feed.give_oldest_last(scene.workload.tail)
    scene.after.append(commit)
    scene.tail_sent = True
    scene.start()
    scene.until(lambda: scene.said(Step.CLAIMED), scene.limits.fire_s, "the pipeline's start")
    # Now it plans. A source that does not wait for the older transaction reads the newer rows and ends.
    deadline = time.monotonic() + PLANNING_S
    while scene.subject.ending(0) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    scene.note_fault("an older transaction commits after newer rows were there to be read")
    commit()
