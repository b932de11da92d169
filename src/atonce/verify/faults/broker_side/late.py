"""F15: requests of an attempt that is over arrive late.

A task dies, or its driver does, with a request on its way; its attempt is aborted; and then the request arrives: before
the epoch is raised, before the partitions are fenced, in the next attempt, or after another driver's claim. On brokers
of transaction protocol 2 each transaction has its epoch; on older ones AtOnce raises it itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from atonce.connectors.contract import NotFired
from atonce.delivery.events import Step
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action, Rule

PROTOCOL_1 = (Need.SPARK, Need.TRANSACTIONS_V1)


def kill_workers(scene: Scene) -> None:
    """Every Python worker of the instance under test; its driver lives. `NotFired`: there was none."""
    killed = 0
    for pid in scene.subject.workers():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    if not killed:
        raise NotFired("no Python worker was running at that moment")


def late_write(scene: Scene, dies: Callable[[], None]) -> Rule:
    """A Produce is on its way when its sender dies."""
    return scene.rule(
        "produce",
        action=Action.DELAY,
        nth=scene.some("produce", most=3),
        topic=scene.names.output,
        call=dies,
    )


def standing_at(scene: Scene, api: str, when: Callable[[], bool]) -> Rule:
    """The driver waits for the answer to its first request of this kind from a moment on."""
    return scene.rule(api, action=Action.STALL, only_if=lambda *_: when())


def ended_since(scene: Scene, rule: Rule, *, committed: bool) -> Callable[[], bool]:
    """A transaction was ended, one way or the other, after the rule struck."""

    def ended() -> bool:
        since = rule.fired_at
        return since is not None and any(
            entry.at > since and entry.acknowledged and entry.facts.committed is committed
            for entry in scene.history.of("end_txn")
        )

    return ended


def arrives(scene: Scene, late: Rule, moment: Rule, what: str) -> None:
    """The late request reaches the broker while the driver stands at that moment."""
    scene.after += [late.release, moment.release]
    scene.start()
    scene.strike(late)
    scene.until(lambda: moment.fired, scene.limits.fire_s, what)
    late.release()
    late.wait_released(15)
    moment.release()
    moment.wait_released(15)


@scenario("F15", "task-before-bump", needs=PROTOCOL_1, short=True)
def task_before_bump(scene: Scene) -> None:
    """A task of an aborted attempt writes when the abort is done and the epoch is still the same."""
    late = late_write(scene, lambda: kill_workers(scene))
    bump = standing_at(scene, "init_producer_id", ended_since(scene, late, committed=False))
    arrives(scene, late, bump, "the next epoch")


@scenario("F15", "task-before-fence", needs=PROTOCOL_1)
def task_before_fence(scene: Scene) -> None:
    """A task of an aborted attempt writes when the epoch is raised and nothing of the new one stands in the log yet."""
    late = late_write(scene, lambda: kill_workers(scene))
    fence = standing_at(scene, "add_partitions_to_txn", ended_since(scene, late, committed=False))
    arrives(scene, late, fence, "the fence")


@scenario("F15", "task-in-next-attempt", needs=(Need.SPARK,))
def task_in_next_attempt(scene: Scene) -> None:
    """A task of an aborted attempt writes when the next attempt has written everything and has not committed."""
    late = late_write(scene, lambda: kill_workers(scene))
    offsets = standing_at(scene, "txn_offset_commit", ended_since(scene, late, committed=False))
    arrives(scene, late, offsets, "the next attempt")


@scenario("F15", "task-after-claim", needs=(Need.SPARK,))
def task_after_claim(scene: Scene) -> None:
    """A task of a driver that was killed writes when its successor has claimed and not written yet."""
    late = late_write(scene, scene.kill_subject)
    scene.after.append(late.release)
    scene.start()
    scene.strike(late)
    claimed = scene.hold_at(Step.PLANNED, 1)
    scene.start()
    scene.strike(claimed)
    late.release()
    late.wait_released(15)
    claimed.release()


@scenario("F15", "offsets-before-bump", needs=PROTOCOL_1)
def offsets_before_bump(scene: Scene) -> None:
    """A TxnOffsetCommit that was sent again arrives once more when its transaction is committed."""
    late = scene.rule("txn_offset_commit", action=Action.DELAY, nth=scene.some("txn_offset_commit", most=2))
    bump = standing_at(scene, "init_producer_id", ended_since(scene, late, committed=True))
    arrives(scene, late, bump, "the next epoch")


@scenario("F15", "offsets-in-next-batch", needs=(Need.EPOCH_PER_TRANSACTION,))
def offsets_in_next_batch(scene: Scene) -> None:
    """A TxnOffsetCommit that was sent again arrives once more in the next batch, before that one's own."""
    late = scene.rule("txn_offset_commit", action=Action.DELAY, nth=scene.some("txn_offset_commit", most=2))
    own = standing_at(scene, "txn_offset_commit", ended_since(scene, late, committed=True))
    arrives(scene, late, own, "the next batch")


@scenario("F15", "partitions-before-bump", needs=PROTOCOL_1, short=True)
def partitions_before_bump(scene: Scene) -> None:
    """An AddPartitionsToTxn that was sent again arrives once more after the commit: it begins a transaction."""
    late = scene.rule("add_partitions_to_txn", action=Action.DELAY, nth=scene.rng.randint(2, 3))
    bump = standing_at(scene, "init_producer_id", ended_since(scene, late, committed=True))
    arrives(scene, late, bump, "the next epoch")


@scenario("F15", "partitions-in-next-batch", needs=PROTOCOL_1)
def partitions_in_next_batch(scene: Scene) -> None:
    """An AddPartitionsToTxn arrives once more when the next batch is written and not committed."""
    late = scene.rule("add_partitions_to_txn", action=Action.DELAY, nth=scene.rng.randint(2, 3))
    own = standing_at(scene, "txn_offset_commit", ended_since(scene, late, committed=True))
    arrives(scene, late, own, "the next batch")
