"""F22: the sink's database dies in a transaction, or its connection breaks on COMMIT."""

from __future__ import annotations

import time

from atonce.connectors.contract import CutsCommits, NotFired
from atonce.delivery.events import Step
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene


def _cut(scene: Scene, *, after: bool) -> None:
    server = scene.server
    if server is None or not isinstance(server, CutsCommits):
        raise NotFired("the commits of this sink are not seen on their way")
    rule = server.cut_at_commit(nth=max(2, scene.some_batch()), after=after)
    scene.start()
    scene.strike(rule)


@scenario("F22", "reset-before-commit", short=True)
def reset_before_commit(scene: Scene) -> None:
    """COMMIT never arrives; the database rolls back."""
    _cut(scene, after=False)


@scenario("F22", "reset-after-commit", short=True)
def reset_after_commit(scene: Scene) -> None:
    """COMMIT is done and its answer is lost: the outcome is unknown to the sink."""
    _cut(scene, after=True)


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
