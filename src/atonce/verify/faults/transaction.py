"""F14, F15, F19, F25, F26: a transaction is broken at each of its steps."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from atonce.connectors.contract import NotFired
from atonce.errors import AtOnceError
from atonce.verify.faults.broker import kill_broker_at
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.cluster import COMMITTED, UNCOMMITTED
from atonce.verify.wire.decode import Facts, Request
from atonce.verify.wire.rules import Action

SHORT_TIMEOUT_MS = 2000


@scenario("F14", "open")
def killed_while_open(scene: Scene) -> None:
    kill_broker_at(scene, Action.CALL_BEFORE, "txn_offset_commit")


@scenario("F14", "preparing", short=True)
def killed_while_preparing(scene: Scene) -> None:
    """Killed while it works on EndTxn: before or after the decision, with some markers written or none."""
    kill_broker_at(scene, Action.CALL_WITH, "end_txn")


@scenario("F14", "prepared")
def killed_when_prepared(scene: Scene) -> None:
    kill_broker_at(scene, Action.CALL_AFTER, "end_txn")


@scenario("F14", "complete")
def killed_when_complete(scene: Scene) -> None:
    kill_broker_at(scene, Action.CALL_BEFORE, "produce", nth=max(2, scene.some("produce")))


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


@scenario("F15", "late-end", needs=(Need.TRANSACTIONS_V2,), short=True)
def late_end(scene: Scene) -> None:
    """An EndTxn arrives when the next transaction is open. Protocol 1 cannot tell them apart; 2 can, by epoch."""
    late = scene.rule("end_txn", action=Action.DELAY, nth=scene.some("end_txn", most=2))
    # The next transaction stands still, half written, until the late request has been answered.
    half = scene.rule("txn_offset_commit", action=Action.STALL, nth=late.nth + 1)
    scene.after.append(half.release)
    scene.start()
    scene.strike(late)
    since = late.fired_at or 0.0

    def next_is_open() -> bool:
        ended = [e.answered_at or 0 for e in scene.history.of("end_txn") if e.at > since and e.acknowledged]
        return bool(ended) and any(e.at > min(ended) and e.acknowledged for e in scene.history.of("produce"))

    scene.until(next_is_open, scene.limits.fire_s, "the next transaction")
    late.release()
    late.wait_released(15)
    half.release()


def shorten(request: Request, facts: Facts) -> Request:
    """Give transactions a time-out of two seconds, so that a run need not wait a minute for it."""
    if request.api != "init_producer_id" or not facts.transactional_id:
        return request
    body: Any = request.body()
    if body is None:
        return request
    return request.with_body(
        dataclasses.replace(body, transaction_timeout=datetime.timedelta(milliseconds=SHORT_TIMEOUT_MS))
    )


def _killed_inside_a_short_transaction(scene: Scene) -> None:
    scene.proxy.adjust = shorten
    scene.inject(
        "txn_offset_commit",
        "end_txn",
        action=Action.CALL_BEFORE,
        nth=scene.some("end_txn"),
        call=scene.kill_subject,
    )


def _transaction_has_ended(scene: Scene) -> bool:
    names = {e.facts.transactional_id for e in scene.history.of("init_producer_id") if e.facts.transactional_id}
    try:
        return all(
            scene.cluster.transaction_state(name) not in ("Ongoing", "PrepareAbort", "PrepareCommit") for name in names
        )
    except (OSError, AtOnceError):
        return False


@scenario("F19", "away-too-long")
def away_too_long(scene: Scene) -> None:
    _killed_inside_a_short_transaction(scene)
    scene.until(lambda: _transaction_has_ended(scene), 30, "the broker's abort of a transaction that timed out")
    scene.dismiss()


@scenario("F19", "frozen-too-long")
def frozen_too_long(scene: Scene) -> None:
    """The driver sleeps through its time-out and wakes up inside a transaction that is gone."""
    scene.proxy.adjust = shorten
    rule = scene.rule(
        "end_txn", action=Action.CALL_BESIDE, nth=scene.some("end_txn"), call=lambda: scene.subject.pause(0)
    )
    stall = scene.rule("end_txn", action=Action.STALL, nth=rule.nth)
    scene.start()
    scene.strike(rule)
    stall.release()
    scene.until(lambda: _transaction_has_ended(scene), 30, "the end of the transaction")
    scene.subject.resume(0)


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
        scene.until(released, 30, "the last stable offset reaching the end")
    except NotFired:
        scene.notes.append("the last stable offset stood still for 30 s although the time-out was 2 s")
        scene.hanging = True
    scene.dismiss()
