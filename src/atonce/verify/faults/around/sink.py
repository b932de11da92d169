"""F22: the sink's database dies in a transaction, or its connection breaks on COMMIT."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from atonce.connectors.contract import CutsCommits, NotFired, Strike
from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import armed, scenario
from atonce.verify.scene import Scene


class CutBatch:
    """Cuts the commit of one batch. A sink commits more than batches: the cut is set up when the pipeline is about to
    send this one."""

    def __init__(self, scene: Scene, server: CutsCommits, *, after: bool) -> None:
        self.fired_at: float | None = None
        self.struck = ""
        self._hold = scene.hold_at(Step.COMMITTING)
        self._server, self._after = server, after
        self._fired, self._over = threading.Event(), threading.Event()
        scene.after.append(self._over.set)
        threading.Thread(target=self._cut, name="atonce-verify-cut", daemon=True).start()

    def _cut(self) -> None:
        if not self._came(self._hold):
            return
        rule = self._server.cut_at_commit(nth=1, after=self._after)
        self._hold.release()
        if self._came(rule):
            self.fired_at, self.struck = rule.fired_at, f"{self._hold.struck}: {rule.struck}"
            self._fired.set()

    def _came(self, strike: Strike) -> bool:
        """False when the run was over before."""
        while not self._over.is_set():
            with suppress(NotFired):
                strike.wait(0.1)
                return True
        return False

    def wait(self, timeout_s: float) -> None:
        if not self._fired.wait(timeout_s):
            raise NotFired(f"no batch was committed within {timeout_s:g} s")

    def release(self) -> None:
        return None


def _cut(scene: Scene, *, after: bool) -> Strike:
    server = scene.server
    if server is None or not isinstance(server, CutsCommits):
        raise NotFired("the commits of this sink are not seen on their way")
    if scene.subject.steps and scene.subject.level is Guarantee.EFFECTIVELY_ONCE:
        return CutBatch(scene, server, after=after)
    return server.cut_at_commit(nth=max(2, scene.some_batch()), after=after)


@armed("F22", "reset-before-commit", short=True)
def reset_before_commit(scene: Scene) -> Strike:
    """COMMIT never arrives; the database rolls back."""
    return _cut(scene, after=False)


@armed("F22", "reset-after-commit", short=True)
def reset_after_commit(scene: Scene) -> Strike:
    """COMMIT is done and its answer is lost: the outcome is unknown to the sink."""
    return _cut(scene, after=True)


@scenario("F22", "database-killed", needs=(Need.OWN_DATABASE,))
def database_killed(scene: Scene) -> None:
    server = scene.server.server if scene.server is not None else None
    if server is None:
        raise NotFired("the sink's server is not one of verify's own")
    held = scene.hold_at(Step.OUTPUT_BEGUN)
    scene.after.append(lambda: None if server.running else server.restart())
    scene.start()
    scene.strike(held)
    held.release()
    time.sleep(scene.rng.uniform(0.0, 0.2))  # somewhere inside the transaction
    server.kill()
    scene.history.mark("database-killed")
    server.restart()
    scene.history.mark("database-started")
