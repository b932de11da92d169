"""F15, F19, F25, F26: a transaction is broken at each of its steps."""

from __future__ import annotations

import dataclasses
import datetime
import threading
from collections.abc import Callable
from typing import Any

from atonce.connectors.contract import NotFired
from atonce.errors import AtOnceError
from atonce.verify.faults.broker_side.late import arrives, ended_since, standing_at
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.process.paused import Paused
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Limits, Scene
from atonce.verify.wire.cluster import COMMITTED, UNCOMMITTED
from atonce.verify.wire.decode import Facts, Request
from atonce.verify.wire.rules import Action, Rule

SHORT_TIMEOUT_MS = 2000


@scenario("F15", "late-produce")
def late_produce(scene: Scene) -> None:
    late = scene.rule("produce", action=Action.DELAY, nth=scene.some("produce", most=3), topic=scene.names.output)
    scene.start()
    scene.strike(late)
    since = late.fired_at or 0.0
    scene.until(
        lambda: any(e.at > since and e.acknowledged for e in scene.history.of("end_txn")),
        scene.limits.fire_s,
        "the end of the transaction",
    )
    late.release()
    late.wait_released(15)


@scenario("F15", "late-end", needs=(Need.EPOCH_PER_TRANSACTION,), short=True)
def late_end(scene: Scene) -> None:
    """The EndTxn of a commit arrives when the next transaction is open and written. Only its epoch tells them apart."""
    late = scene.rule(
        "end_txn",
        action=Action.DELAY,
        nth=scene.some("txn_offset_commit", most=2),
        only_if=lambda _, facts: bool(facts.committed),
    )
    # The next transaction stands still, half written, until the late request has been answered.
    half = standing_at(scene, "txn_offset_commit", ended_since(scene, late, committed=True))
    arrives(scene, late, half, "the next transaction")


def shortened(timeout_ms: int) -> Callable[[Request, Facts], Request]:
    """Gives transactions a short time-out, so that a run need not wait a minute for it."""

    def shorten(request: Request, facts: Facts) -> Request:
        body: Any = request.body() if request.api == "init_producer_id" and facts.transactional_id else None
        if body is None:
            return request
        return request.with_body(
            dataclasses.replace(body, transaction_timeout=datetime.timedelta(milliseconds=timeout_ms))
        )

    return shorten


def shorten_transactions(scene: Scene) -> None:
    """Longer where the clean run was slow: a batch that nothing happens to must not time out."""
    scene.proxy.adjust = shortened(round(SHORT_TIMEOUT_MS * max(1.0, scene.limits.fire_s / Limits().fire_s)))


def _killed_inside_a_short_transaction(scene: Scene) -> set[str]:
    shorten_transactions(scene)
    scene.inject(
        "txn_offset_commit",
        "end_txn",
        action=Action.CALL_BEFORE,
        nth=scene.some("end_txn"),
        call=scene.kill_subject,
    )
    return open_transactions(scene)


def _state(scene: Scene, name: str) -> str:
    return scene.cluster.patiently(lambda: scene.cluster.transaction_state(name))


def open_transactions(scene: Scene) -> set[str]:
    """The ids whose transaction is open now, as the coordinator says; without one there is nothing to time out."""
    names = {e.facts.transactional_id for e in scene.history.of("init_producer_id") if e.facts.transactional_id}
    found = {name for name in names if _state(scene, name) == "Ongoing"}
    if not found:
        raise NotFired(f"no transaction was open at that moment ({', '.join(sorted(names)) or 'none was begun'})")
    return found


def aborted_by_the_coordinator(scene: Scene, names: set[str]) -> None:
    """Nobody can end them but the coordinator: waits until it has, by their time-out."""

    def ended() -> bool:
        return all(_state(scene, name) == "CompleteAbort" for name in names)

    scene.until(ended, scene.limits.fire_s + 5, "the coordinator's abort of a transaction that timed out")
    scene.history.mark("timed-out", ", ".join(sorted(names)))


@scenario("F19", "away-too-long")
def away_too_long(scene: Scene) -> None:
    aborted_by_the_coordinator(scene, _killed_inside_a_short_transaction(scene))
    scene.dismiss()


@scenario("F19", "frozen-too-long")
def frozen_too_long(scene: Scene) -> None:
    """The driver sleeps through its time-out, its EndTxn on the way, and wakes up in a transaction that is gone."""
    shorten_transactions(scene)
    frozen = threading.Event()

    def freeze() -> None:
        scene.subject.pause(0)
        frozen.set()

    end = scene.rule("end_txn", action=Action.STALL, nth=scene.some("end_txn"), call=freeze)
    scene.after.append(lambda: scene.subject.resume(0))
    scene.start()
    scene.strike(end)
    scene.until(frozen.is_set, 10, "the driver's sleep")
    aborted_by_the_coordinator(scene, open_transactions(scene))
    end.release()
    end.wait_released(15)
    scene.subject.resume(0)


@scenario("F19", "task-paused-too-long", needs=(Need.SPARK,))
def task_paused_too_long(scene: Scene) -> None:
    """A task's process sleeps through the time-out, wakes up, and tells the driver that all is written."""
    shorten_transactions(scene)
    paused = Paused(scene)
    sent = scene.inject("produce", action=Action.CALL_BESIDE, topic=scene.names.output, call=paused.pause)
    scene.until(lambda: _answered(scene, sent), 10, "the answer to what the task had sent")
    aborted_by_the_coordinator(scene, open_transactions(scene))
    paused.resume()


def _answered(scene: Scene, rule: Rule) -> bool:
    since = rule.fired_at or 0.0
    return any((e.answered_at or 0.0) >= since and e.acknowledged for e in scene.history.of("produce"))


@scenario("F25", "aborted-data-in-the-log", short=True, short_on_spark=False)
def uncommitted_beside_committed(scene: Scene) -> None:
    """Killed before its commit: the next start aborts. read_uncommitted sees that data, read_committed never."""
    scene.inject("end_txn", action=Action.CALL_BEFORE, call=scene.kill_subject)
    ends = scene.cluster.patiently(lambda: scene.cluster.offsets(scene.names.output, isolation=UNCOMMITTED))
    stable = scene.cluster.patiently(lambda: scene.cluster.offsets(scene.names.output, isolation=COMMITTED))
    if ends == stable:
        raise NotFired("no uncommitted data stood in the log when the subject was killed")
    scene.notes.append(
        f"uncommitted records beyond the last stable offset: {sum(ends.values()) - sum(stable.values())}"
    )
    scene.dismiss()


@scenario("F26", "stalled-transaction")
def stalled_transaction(scene: Scene) -> None:
    """Nobody ends the transaction: the broker must, by its time-out, and the last stable offset goes on."""
    _killed_inside_a_short_transaction(scene)

    def released() -> bool:
        try:
            ends = scene.cluster.offsets(scene.names.output, isolation=UNCOMMITTED)
            return ends == scene.cluster.offsets(scene.names.output, isolation=COMMITTED)
        except (OSError, AtOnceError):
            return False

    try:
        scene.until(released, scene.limits.fire_s + 5, "the last stable offset reaching the end")
    except NotFired:
        scene.notes.append("the last stable offset stood still long after the transaction's time-out")
        scene.hanging = True
    scene.dismiss()
