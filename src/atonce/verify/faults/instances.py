"""F16, F18: two instances at once, as a zombie that comes back or as a rebalance in the middle of a batch."""

from __future__ import annotations

import time

from atonce.connectors.contract import NotFired
from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action


def _second_takes_over(scene: Scene, first_members: set[str]) -> None:
    """The coordinator has given the first up; the second reads on from the recorded progress to the end."""
    scene.dismiss(first_members)
    scene.proxy.positions.clear()
    scene.subject.start(1)
    scene.input_ends = scene.feed.ends()
    if scene.subject.endless:
        scene.until(scene._at_the_end, scene.limits.drain_s, "the second instance coming to the end")
    else:
        scene.until(lambda: scene.subject.ending(1) is not None, scene.limits.drain_s, "the second instance's end")


@scenario("F16", "zombie", short=True, options={"auto.commit.interval.ms": "600000"})
def zombie(scene: Scene) -> None:
    """Frozen before its output is committed, replaced, and woken again."""
    if scene.subject.steps:
        level = scene.subject.level
        # Where a writer has all of the output locked, nobody could replace one that is frozen meanwhile.
        locked = level is Guarantee.EFFECTIVELY_ONCE and scene.written is not None and scene.written.one_writer
        before_output = level is Guarantee.AT_MOST_ONCE or locked
        held = scene.hold_at(Step.OUTPUT_BEGUN if before_output else Step.OUTPUT_DONE)
        scene.start()
        scene.strike(held)
        _second_takes_over(scene, scene.members())
        held.release()
        scene.history.mark("resumed", "instance 0, a zombie now")
        scene.until(lambda: scene.subject.ending(0) is not None, scene.limits.drain_s, "the zombie's end")
        return
    api = "produce" if scene.watch else "fetch"
    rule = scene.rule(api, action=Action.CALL_BESIDE, nth=scene.some(api, most=3), call=lambda: scene.subject.pause(0))
    scene.start()
    scene.strike(rule)
    _second_takes_over(scene, scene.members())
    scene.subject.resume(0)
    before = time.time()
    # It wakes up, finishes or fails what it had in hand, and finds itself replaced.
    try:
        scene.until(lambda: time.time() - max(before, scene.history.last_write_at()) > 2.0, 15, "silence")
    except NotFired:
        scene.notes.append("the zombie went on writing after it was replaced")
    scene.subject.kill(0)
    scene.subject.kill(1)
    scene.dismiss()


@scenario("F16", "takeover-races-commit", needs=(Need.SPARK, Need.TRANSACTIONS))
def takeover_races_commit(scene: Scene) -> None:
    """The older instance commits while the newer one is about to fence it: what it reads must be what stands then."""
    held = scene.hold_at(Step.OUTPUT_DONE)
    scene.start()
    scene.strike(held)
    fencing = scene.rule("init_producer_id", action=Action.STALL)
    scene.after.append(fencing.release)
    scene.subject.start(1)
    scene.until(lambda: fencing.fired, scene.limits.fire_s, "the newer instance's InitProducerId")
    since = time.time()
    held.release()
    scene.until(
        lambda: any(e.at > since and e.acknowledged and e.facts.committed for e in scene.history.of("end_txn")),
        scene.limits.fire_s,
        "the older instance's commit",
    )
    fencing.release()
    scene.until(lambda: scene.subject.ending(1) is not None, scene.limits.drain_s, "the newer instance's end")
    scene.until(lambda: scene.subject.ending(0) is not None, scene.limits.drain_s, "the older instance's end")


@scenario("F18", "rebalance", needs=(Need.GROUP,))
def rebalance(scene: Scene) -> None:
    """A second member joins in the middle; one member's commit is lost on the way."""
    rule = scene.rule("offset_commit", action=Action.DROP_REQUEST, nth=scene.some("offset_commit", most=2))
    scene.start()
    scene.until(lambda: scene.history.last_write_at() > 0, scene.limits.fire_s, "the first write")
    scene.subject.start(1)
    scene.strike(rule)
    joined = len(scene.members())
    scene.until(lambda: len(scene.members()) > max(1, joined - 1), 10, "the second member")
    scene.subject.kill(1)
    scene.subject.kill(0)
    scene.dismiss()
