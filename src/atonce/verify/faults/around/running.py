"""F21, F27, F30, F32, F33, F35 while the pipeline runs: it stands still between two steps, the thing happens around it,
and it goes on in the same process. What a restart would compare, it has in its memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from atonce.connectors.contract import InputRecord, MadeAgain, NotFired, Restorable
from atonce.delivery.events import Step
from atonce.verify.faults.around.ledger import committed_offsets, remove_unread, set_group
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.process.engine import checkpoint
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene


def while_it_stands(scene: Scene, happens: Callable[[], object], nth: int | None = None) -> None:
    """After one of the first two batches: a third follows in the same run, by which it must have noticed."""
    held = scene.hold_at(Step.DELIVERED, nth or scene.rng.randint(1, 2))
    scene.start()
    scene.strike(held)
    happens()
    held.release()


def keep_then(scene: Scene, keep: Callable[[], object], happens: Callable[[], object]) -> None:
    """Something is kept after the first batch and comes back after the second; the pipeline runs on."""
    first, second = scene.hold_at(Step.DELIVERED, 1), scene.hold_at(Step.DELIVERED, 1)
    scene.start()
    scene.strike(first)
    keep()
    first.release()
    scene.strike(second)
    happens()
    second.release()


def _there(folder: Path) -> Path:
    if not (folder / "offsets").is_dir():
        raise NotFired(f"the pipeline keeps no checkpoint at {folder}")
    return folder


@scenario("F21", "deleted-while-running", may_refuse=True)
def checkpoint_deleted(scene: Scene) -> None:
    """All of the checkpoint is removed under the query that writes to it."""
    while_it_stands(scene, lambda: shutil.rmtree(_there(checkpoint(scene))))


@scenario("F35", "older-copy-while-running", may_refuse=True)
def checkpoint_goes_back(scene: Scene) -> None:
    """The checkpoint comes back from a copy that is a batch older, under the query that writes to it."""
    folder, kept = checkpoint(scene), scene.names.scratch / "checkpoint.copy"

    def bring_back() -> None:
        shutil.rmtree(folder)
        kept.rename(folder)

    keep_then(scene, lambda: shutil.copytree(_there(folder), kept), bring_back)


@scenario("F27", "reset-while-running", needs=(Need.KAFKA_LEDGER,), may_refuse=True, short=True)
def group_reset(scene: Scene) -> None:
    """A tool sets the group's offsets back to the start under the running pipeline; tools write no metadata."""

    def reset() -> None:
        set_group(scene, {topic: dict.fromkeys(at, (0, "")) for topic, at in committed_offsets(scene).items()})
        scene.must_refuse = "offsets that somebody had set"

    while_it_stands(scene, reset)


@scenario("F27", "expired-while-running", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def offsets_expire(scene: Scene) -> None:
    """The group is gone under the running pipeline."""

    def delete() -> None:
        scene.cluster.delete_group(scene.names.group)
        if scene.cluster.patiently(lambda: scene.cluster.committed(scene.names.group)):
            raise NotFired(f"group {scene.names.group} could not be deleted")

    while_it_stands(scene, delete)


@scenario("F33", "ledger-goes-back", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def group_goes_back(scene: Scene) -> None:
    """The group's newest commit is gone, as after a failover to a copy that lagged; its output is still there."""
    older: dict[str, dict[int, tuple[int, str]]] = {}
    keep_then(scene, lambda: older.update(committed_offsets(scene)), lambda: set_group(scene, older))


@scenario("F33", "store-goes-back", needs=(Need.RESTORABLE,), may_refuse=True, short=True)
def store_goes_back(scene: Scene) -> None:
    """Output and ledger come back together from an older copy: what the ledger says is what the table holds."""
    written = scene.written
    if written is None or not isinstance(written, Restorable):
        raise NotFired("the sink's output cannot be copied")
    copies: list[Callable[[], None]] = []
    keep_then(scene, lambda: copies.append(written.copy()), lambda: copies[0]())


@scenario("F30", "retention-while-running", may_refuse=True, needs=(Need.SPARK,))
def retention_overtakes(scene: Scene) -> None:
    """Half of what is still unread is removed before the next batch is read."""
    while_it_stands(scene, partial(remove_unread, scene), nth=1)


def another_log(scene: Scene) -> Sequence[InputRecord]:
    """As many records as before, in another order: who reads on at its offsets loses some and doubles others."""
    return scene.workload.head[::-1]


def make_topic_again(scene: Scene) -> None:
    scene.cluster.delete_topic(scene.names.input, wait=True)
    scene.feed.prepare(scene.workload.partitions)
    scene.feed.give(another_log(scene))


@scenario("F32", "topic-made-again", needs=(Need.PROCESSING,), may_refuse=True, short=True)
def topic_made_again(scene: Scene) -> None:
    """Deleted, made again and filled past the position under the running pipeline: only its id tells."""
    while_it_stands(scene, partial(make_topic_again, scene))


@scenario("F32", "table-made-again", needs=(Need.MADE_AGAIN,), may_refuse=True)
def table_made_again(scene: Scene) -> None:
    """Another table under the same name, filled past the position: its ids begin anew."""
    feed = scene.feed
    if not isinstance(feed, MadeAgain):
        raise NotFired("the source's input cannot be made again")
    while_it_stands(scene, lambda: feed.make_again(another_log(scene)))


@scenario("F32", "log-cut", needs=(Need.PROCESSING, Need.ONE_APACHE), may_refuse=True)
def log_cut(scene: Scene) -> None:
    """The log loses its records and is written anew past the position, as after an unclean election: the topic is the
    same, only leader epochs tell."""

    def cut() -> None:
        scene.harness.kill()
        for partition in range(scene.workload.partitions):
            for folder in scene.harness.data().rglob(f"{scene.names.input}-{partition}"):
                for file in folder.iterdir():
                    if file.is_file() and file.name != "partition.metadata":
                        file.unlink()
        scene.harness.restart()
        scene.feed.prepare(scene.workload.partitions)
        if any(scene.feed.ends().values()):
            raise NotFired("the broker brought the records back")
        scene.feed.give(another_log(scene))

    while_it_stands(scene, cut)
