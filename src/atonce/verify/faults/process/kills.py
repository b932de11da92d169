"""F6, F7, F8, F10: the subject is killed between its two writes, or in the middle of one.

An AtOnce pipeline is held at its own steps; a command is killed by what it sends: the commit of its offsets is the
border between the two writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action

SLOW_TIMER = {"auto.commit.interval.ms": "600000"}
QUICK_TIMER = {"auto.commit.interval.ms": "100"}
PROGRESS = ("offset_commit", "txn_offset_commit")


def kill_at_step(scene: Scene, step: Step) -> None:
    held = scene.hold_at(step)
    scene.start()
    scene.strike(held)
    scene.kill()


def stop_after_two(scene: Scene, after_the_first: Callable[[], object]) -> None:
    """Killed when two batches are delivered; something is kept from when it was one."""
    first, second = scene.hold_at(Step.DELIVERED, 1), scene.hold_at(Step.DELIVERED, 1)
    scene.start()
    scene.strike(first)
    after_the_first()
    first.release()
    scene.strike(second)
    scene.kill()


def kill_at_request(scene: Scene, action: Action, *apis: str, nth: int | None = None) -> None:
    scene.inject(*apis, action=action, nth=nth, call=scene.kill_subject)
    scene.dismiss()


def timer_has_committed(scene: Scene) -> None:
    """Held before its output, a pipeline at level none waits here until the timer has recorded the batch."""
    if scene.watch is None:
        time.sleep(
            1.0
        )  # a ledger elsewhere commits where the proxy does not see it; its timer ticks ten times meanwhile
        return
    since = time.time()
    scene.until(
        lambda: any((entry.answered_at or 0) > since for entry in scene.history.of("offset_commit", "end_txn")),
        10,
        "the timer's commit",
    )


def kill_when_recorded(scene: Scene) -> None:
    """A pipeline whose progress is recorded and whose output is not there yet, as far as its level has that order."""
    if scene.subject.level is Guarantee.NONE:
        held = scene.hold_at(Step.OUTPUT_BEGUN)
        scene.start()
        scene.strike(held)
        timer_has_committed(scene)
        return scene.kill()
    after = Step.COMMITTED if scene.subject.level is Guarantee.EFFECTIVELY_ONCE else Step.PROGRESS_DONE
    return kill_at_step(scene, after)


@scenario("F6", "committed-not-written", short=True, options=QUICK_TIMER)
def committed_not_written(scene: Scene) -> None:
    if scene.subject.steps:
        return kill_when_recorded(scene)
    return kill_at_request(scene, Action.CALL_AFTER, *PROGRESS)


@scenario("F6", "before-spark-commit-log", needs=(Need.SPARK,))
def before_commit_log(scene: Scene) -> None:
    kill_at_step(scene, Step.DELIVERED)


@scenario("F6", "progress-in-open-transaction", needs=(Need.SPARK,), levels=(Guarantee.EFFECTIVELY_ONCE,))
def progress_in_open_transaction(scene: Scene) -> None:
    kill_at_step(scene, Step.PROGRESS_DONE)


@scenario("F7", "written-not-committed", short=True, options=SLOW_TIMER)
def written_not_committed(scene: Scene) -> None:
    if scene.subject.steps:
        return kill_at_step(scene, Step.OUTPUT_DONE)
    return kill_at_request(scene, Action.CALL_BEFORE, "offset_commit", "end_txn")


@scenario("F7", "before-commit", needs=(Need.SPARK,), levels=(Guarantee.EFFECTIVELY_ONCE,))
def before_commit(scene: Scene) -> None:
    kill_at_step(scene, Step.COMMITTING)


@scenario("F7", "planned-only", needs=(Need.SPARK,), options=SLOW_TIMER)
def planned_only(scene: Scene) -> None:
    kill_at_step(scene, Step.PLANNED)


@scenario("F8", "timer-before-write", levels=(Guarantee.NONE,), options=QUICK_TIMER)
def timer_before_write(scene: Scene) -> None:
    committed_not_written(scene)


@scenario("F8", "timer-after-write", levels=(Guarantee.NONE,), options=SLOW_TIMER)
def timer_after_write(scene: Scene) -> None:
    written_not_committed(scene)


@scenario("F10", "out-of-memory", short=True, short_on_spark=False, options=SLOW_TIMER)
def out_of_memory(scene: Scene) -> None:
    """What the kernel does to a process that takes too much: SIGKILL, here while its output is on the wire."""
    if scene.watch is not None:
        scene.inject("produce", action=Action.CALL_WITH, topic=scene.names.output, call=scene.kill_subject)
        return scene.dismiss()
    if scene.subject.steps:
        held = scene.hold_at(Step.OUTPUT_BEGUN)
        scene.start()
        scene.strike(held)
        held.release()
        time.sleep(scene.rng.uniform(0.01, 0.25))  # somewhere inside the write
        return scene.kill()
    return kill_at_request(scene, Action.CALL_WITH, *PROGRESS)
