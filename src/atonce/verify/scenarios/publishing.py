"""F1, F2, F5, F29: the publishing half: files or a table into Kafka."""

from __future__ import annotations

from atonce.engine.observer import Step
from atonce.guarantee import Guarantee
from atonce.verify.feeds import TableFeed
from atonce.verify.rules import Action, NotFired
from atonce.verify.scenarios.kills import QUICK_TIMER, SLOW_TIMER, kill_at_step, timer_has_committed
from atonce.verify.scenarios.registry import scenario
from atonce.verify.scene import Scene


@scenario("F1", "recorded-not-published", short=True, options=QUICK_TIMER)
def recorded_not_published(scene: Scene) -> None:
    if scene.subject.level is Guarantee.NONE:
        held = scene.hold_at(Step.OUTPUT_BEGUN)
        scene.start()
        scene.strike(held)
        timer_has_committed(scene)
        return scene.kill()
    after = Step.COMMITTED if scene.subject.level is Guarantee.EFFECTIVELY_ONCE else Step.PROGRESS_DONE
    return kill_at_step(scene, after)


@scenario("F2", "published-not-recorded", short=True, options=SLOW_TIMER)
def published_not_recorded(scene: Scene) -> None:
    kill_at_step(scene, Step.OUTPUT_DONE)


@scenario("F5", "half-a-file", short=True, options=SLOW_TIMER)
def half_a_file(scene: Scene) -> None:
    """Killed between two Produce requests of one batch: the first part of the file is in the log."""
    rule = scene.rule(
        "produce", action=Action.CALL_AFTER, nth=1, topic=scene.names.output, call=lambda: scene.subject.kill(0)
    )
    scene.start()
    scene.strike(rule)


@scenario("F29", "older-row-later")
def older_row_later(scene: Scene) -> None:
    """Rows of an older transaction become visible after newer ones were read."""
    if not isinstance(scene.feed, TableFeed):
        raise NotFired("the source is not a table of verify's own")
    commit = scene.feed.give_oldest_last(scene.names, scene.workload.tail)
    scene.tail_sent = True
    scene.start()
    scene.until(lambda: scene.subject.ending(0) is not None, scene.limits.drain_s, "the end of the first run")
    scene.note_fault("an older transaction commits after newer rows were there to be read")
    commit()
