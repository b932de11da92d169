"""F11, F14: the broker is killed at exactly one request, and comes back on the same data and port."""

from __future__ import annotations

from atonce.verify.faults.broker_side.broker import broker_back, broker_down
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action


def killed(fault: str, name: str, api: str, action: Action, *, later: bool = False, short: bool = False) -> None:
    """`later`: not at the first of these requests, so that a transaction has ended before."""

    @scenario(fault, name, short=short)
    def play(scene: Scene) -> None:
        broker_down(scene, action, api, nth=max(2, scene.some(api)) if later else None)
        broker_back(scene)


killed("F11", "before-append", "produce", Action.CALL_BEFORE)
killed("F11", "after-append-before-ack", "produce", Action.CALL_AFTER, short=True)
# While it works on a Produce: in memory, or half on disk.
killed("F11", "between-flushes", "produce", Action.CALL_WITH)
killed("F14", "open", "txn_offset_commit", Action.CALL_BEFORE)
# While it works on EndTxn: before or after the decision, with some markers written or none.
killed("F14", "preparing", "end_txn", Action.CALL_WITH, short=True)
killed("F14", "prepared", "end_txn", Action.CALL_AFTER)
killed("F14", "complete", "produce", Action.CALL_BEFORE, later=True)
