"""F16, F18: two instances at once, as a zombie that comes back or as a rebalance in the middle of a batch."""

from __future__ import annotations

import time

from atonce.connectors.contract import NotFired, Strike
from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.process.kills import SLOW_TIMER
from atonce.verify.faults.process.paused import Paused
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


def _before_output(scene: Scene) -> bool:
    """Where a writer has all of the output locked, nobody could replace one that is frozen meanwhile."""
    level = scene.subject.level
    locked = level is Guarantee.EFFECTIVELY_ONCE and scene.written is not None and scene.written.one_writer
    return level is Guarantee.AT_MOST_ONCE or locked


def _frozen(scene: Scene) -> Strike:
    """The pipeline stands still before its output is committed."""
    held = scene.hold_at(Step.OUTPUT_BEGUN if _before_output(scene) else Step.OUTPUT_DONE)
    scene.start()
    scene.strike(held)
    return held


def _woken(scene: Scene, zombie: Strike) -> None:
    zombie.release()
    scene.history.mark("resumed", "instance 0, a zombie now")
    scene.until(lambda: scene.subject.ending(0) is not None, scene.limits.drain_s, "the zombie's end")


@scenario("F16", "zombie", short=True, options=SLOW_TIMER)
def zombie(scene: Scene) -> None:
    """Frozen before its output is committed, replaced, and woken when the newcomer is done."""
    if scene.subject.steps:
        held = _frozen(scene)
        _second_takes_over(scene, scene.members())
        _woken(scene, held)
        return
    _paused_command(scene)
    _second_takes_over(scene, scene.members())
    scene.subject.resume(0)
    _silence(scene)
    scene.subject.kill(0)
    scene.subject.kill(1)
    scene.dismiss()


def _paused_command(scene: Scene) -> None:
    api, topic = ("produce", scene.names.output) if scene.watch else ("fetch", scene.names.input)
    scene.inject(
        api,
        action=Action.CALL_BESIDE,
        nth=scene.some(api, most=3),
        topic=topic,
        call=lambda: scene.subject.pause(0),
    )


def _silence(scene: Scene) -> None:
    """It wakes up, finishes or fails what it had in hand, and finds itself replaced."""
    before = time.time()
    try:
        scene.until(lambda: time.time() - max(before, scene.history.last_write_at()) > 2.0, 15, "silence")
    except NotFired:
        scene.notes.append("the zombie went on writing after it was replaced")


def _wakes_at(scene: Scene, step: Step, commits: int) -> None:
    """The newcomer stands still at its first `step`, a command at its commit number `commits`; the zombie wakes up."""
    if not scene.subject.steps:
        return _command_wakes_at(scene, commits)
    held = _frozen(scene)
    newcomer = scene.subject.hold_at(step, 1, number=1)
    scene.after.append(newcomer.release)
    scene.dismiss(scene.members())
    scene.subject.start(1)
    scene.until(lambda: newcomer.fired_at is not None, scene.limits.fire_s, f"the newcomer's step {step.value}")
    _woken(scene, held)
    newcomer.release()
    scene.until(lambda: scene.subject.ending(1) is not None, scene.limits.drain_s, "the newcomer's end")
    return None


def _command_wakes_at(scene: Scene, commits: int) -> None:
    _paused_command(scene)
    scene.dismiss(scene.members())
    held = scene.rule("offset_commit", "end_txn", action=Action.STALL, nth=commits)
    scene.after.append(held.release)
    scene.subject.start(1)
    scene.until(lambda: held.fired, scene.limits.fire_s, "the newcomer's commit")
    scene.subject.resume(0)
    _silence(scene)
    held.release()
    held.wait_released(15)
    scene.subject.kill(0)
    scene.subject.kill(1)
    scene.dismiss()


@scenario("F16", "wakes-before-first-commit", options=SLOW_TIMER)
def wakes_before_first_commit(scene: Scene) -> None:
    """The zombie wakes up when the newcomer has claimed and written, and has committed nothing yet."""
    _wakes_at(scene, Step.OUTPUT_BEGUN if _before_output(scene) else Step.OUTPUT_DONE, 1)


@scenario("F16", "wakes-midway", options=SLOW_TIMER)
def wakes_midway(scene: Scene) -> None:
    """The zombie wakes up between two batches of the newcomer."""
    _wakes_at(scene, Step.DELIVERED, 2)


@scenario("F16", "task-wakes-after-takeover", needs=(Need.SPARK, Need.ACKS), options=SLOW_TIMER)
def task_wakes_after_takeover(scene: Scene) -> None:
    """The driver dies and a task of its does not: it stands still with a Produce on its way, and goes on when a newer
    driver has written."""
    paused = Paused(scene)
    late = scene.rule(
        "produce",
        action=Action.STALL,
        nth=scene.some("produce", most=3),
        topic=scene.names.output,
        call=paused.pause,
    )
    scene.after.append(late.release)
    scene.start()
    scene.strike(late)
    scene.until(lambda: bool(paused.pids), 10, "the sleep of the task's process")
    scene.subject.kill_driver(0)
    scene.start()
    since = time.time()
    scene.until(
        lambda: any(e.at > since and e.acknowledged for e in scene.history.of("produce")),
        scene.limits.fire_s,
        "the newer driver's first write",
    )
    late.release()
    late.wait_released(15)
    paused.resume()


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
