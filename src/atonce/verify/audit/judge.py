"""What one faulted run comes to: the findings against what the level allows, and how long recovery took."""

from __future__ import annotations

from collections.abc import Sequence

from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import LEGAL, Anomaly, allowed
from atonce.verify.checks.findings import Finding, found
from atonce.verify.faults.variants import Variant
from atonce.verify.results import State
from atonce.verify.scene import Scene

RETURNS = frozenset({"started", "resumed", "broker-started", "database-started"})


def judge(variant: Variant, scene: Scene, findings: Sequence[Finding]) -> tuple[State, str, tuple[Finding, ...]]:
    """(state, why, the findings that count). A refusal counts as kept where going on would lose or double data."""
    level = scene.subject.level
    refused = scene.refusal or scene.refusal_seen
    kept = list(findings)
    if scene.refusal is not None:
        if variant.may_refuse:
            kept = [f for f in kept if f.anomaly is not Anomaly.LOST]  # not delivered yet, and it says so
        else:
            kept += found(Anomaly.STUCK, [f"refused to go on without need: {end_of(scene.refusal.words)}"])
    if scene.must_say is not None and not scene.said(scene.must_say):
        kept += found(Anomaly.LOST, [f"something was left out without a word ({scene.must_say.value} was never told)"])
    if scene.must_refuse and scene.refusal is None and level is Guarantee.EFFECTIVELY_ONCE:
        kept += found(Anomaly.UNEXPECTED, [f"it went on over {scene.must_refuse}"])
    if scene.served_damage:
        kept += found(Anomaly.INCONSISTENT_OFFSETS, [f"the broker served {scene.served_damage}"])
    if level is None:
        return State.OBSERVED, end_of(refused.words) if refused else "", tuple(kept)
    idempotent = all(head.producer_id >= 0 for e in scene.history.of("produce") for _, _, head in e.facts.batches)
    may = LEGAL if variant.exact else allowed(level, idempotent=idempotent)
    bad = [f for f in kept if f.anomaly not in may]
    if bad:
        why = "; ".join(f"{f.anomaly.value}: {f.examples[0]}" for f in bad)
        return State.BROKEN, why, tuple(kept)
    if refused:
        return State.REFUSED, end_of(refused.words), tuple(kept)
    return State.KEPT, "", tuple(kept)


def recovery_s(scene: Scene) -> float | None:
    """From the fault until output flows again after the last thing that came back; until the end when none was due."""
    fault_at = scene.fault_at
    if fault_at is None:
        return None
    back = max((mark.at for mark in scene.history.marks if mark.what in RETURNS), default=fault_at)
    flows = scene.watch.first_after(max(back, fault_at)) if scene.watch else None
    drained = next((mark.at for mark in reversed(scene.history.marks) if mark.what == "drained"), None)
    end = flows or drained
    return end - fault_at if end is not None else None


def end_of(words: str, most: int = 500) -> str:
    """The last of them, from a whole word on: what went before is a log."""
    return words if len(words) <= most else "… " + words[-most:].partition(" ")[2]
