"""F20, F21: what happens to Spark itself: a worker dies, a checkpoint is gone or old."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from atonce.connectors.contract import NotFired
from atonce.delivery.events import Step
from atonce.errors import AtOnceError
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.process.kills import stop_after_two
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action


def checkpoint(scene: Scene) -> Path:
    return scene.names.scratch / "checkpoint"


@scenario("F20", "worker-killed", short=True)
def worker_killed(scene: Scene) -> None:
    """Every Python worker of the executor is killed while a task writes; Spark runs the task again."""
    killed: list[int] = []

    def kill_workers() -> None:
        for pid in scene.subject.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    if scene.watch is not None:
        scene.inject("produce", action=Action.CALL_AFTER, topic=scene.names.output, call=kill_workers)
    else:
        held = scene.hold_at(Step.OUTPUT_BEGUN)
        scene.start()
        scene.strike(held)
        held.release()
        scene.until(lambda: bool(scene.subject.workers()), 10, "a Python worker")
        kill_workers()
    if not killed:
        raise NotFired("no Python worker was running at that moment")


def _stopped_after_some_batches(scene: Scene) -> Path:
    held = scene.hold_at(Step.DELIVERED, max(2, scene.some_batch()))
    scene.start()
    scene.strike(held)
    scene.kill()
    folder = checkpoint(scene)
    if not (folder / "offsets").is_dir():
        raise NotFired(f"the pipeline keeps no checkpoint at {folder}")
    return folder


@scenario("F21", "checkpoint-deleted", short=True, may_refuse=True)
def checkpoint_deleted(scene: Scene) -> None:
    """Batches are numbered and cut anew afterwards: neither tells what was delivered."""
    shutil.rmtree(_stopped_after_some_batches(scene))
    scene.subject.larger_batches()


@scenario("F21", "checkpoint-behind", may_refuse=True)
def checkpoint_behind(scene: Scene) -> None:
    """The newest planned batch and the commits of the last two are gone, as from an older copy; and more input is there
    than when it was made, so that the next batch is planned larger."""
    folder = _stopped_after_some_batches(scene)
    scene.subject.larger_batches()
    planned = sorted((p for p in (folder / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last = int(planned[-1].name)
    for name in (f"offsets/{last}", f"commits/{last}", f"commits/{last - 1}"):
        for path in (folder / name, (folder / name).with_name(f".{Path(name).name}.crc")):
            path.unlink(missing_ok=True)


@scenario("F21", "older-copy", may_refuse=True)
def older_copy(scene: Scene) -> None:
    """All of the checkpoint comes back from a copy that is a batch older, and more input is there than then."""
    folder, kept = checkpoint(scene), scene.names.scratch / "checkpoint.copy"
    stop_after_two(scene, lambda: shutil.copytree(folder, kept))
    scene.subject.larger_batches()
    shutil.rmtree(folder)
    kept.rename(folder)


def _several_batches_old(scene: Scene) -> None:
    """All of the checkpoint comes back from a copy that is two batches older."""
    folder, kept = checkpoint(scene), scene.names.scratch / "checkpoint.copy"
    first, third = scene.hold_at(Step.DELIVERED, 1), scene.hold_at(Step.DELIVERED, 2)
    scene.start()
    scene.strike(first)
    shutil.copytree(folder, kept)
    first.release()
    scene.strike(third)
    scene.kill()
    shutil.rmtree(folder)
    kept.rename(folder)


@scenario("F35", "same-cut", may_refuse=True)
def old_same_cut(scene: Scene) -> None:
    """Spark plans the batches again as they were: what is delivered is passed over, its state is made again."""
    _several_batches_old(scene)


@scenario("F35", "another-cut", may_refuse=True)
def old_another_cut(scene: Scene) -> None:
    """Spark plans larger batches than those that were delivered."""
    _several_batches_old(scene)
    scene.subject.larger_batches()


@scenario("F21", "commit-log-lost", needs=(Need.STATELESS,), may_refuse=True)
def commits_lost(scene: Scene) -> None:
    """All of Spark's own commit log is gone: it plans the newest batch again."""
    folder = _stopped_after_some_batches(scene)
    try:
        shutil.rmtree(folder / "commits")
    except OSError as error:
        raise AtOnceError(f"could not remove {folder / 'commits'}: {error}") from error
