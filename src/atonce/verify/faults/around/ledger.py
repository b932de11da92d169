"""F27, F30: the ledger is set back behind the checkpoint's back, or the input is removed before it was read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from atonce.connectors.contract import NotFired, Restorable
from atonce.delivery.events import Step
from atonce.verify.checks.atomicity import planned_ends
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.process.kills import stop_after_two
from atonce.verify.faults.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action


def _stop_somewhere(scene: Scene) -> None:
    if scene.subject.steps:
        held = scene.hold_at(Step.DELIVERED, max(2, scene.some_batch()))
        scene.start()
        scene.strike(held)
        scene.kill()
        return
    api = "offset_commit" if scene.counts.get("offset_commit") else "end_txn"
    scene.inject(api, action=Action.CALL_AFTER, nth=scene.some(api, most=2), call=scene.kill_subject)
    scene.dismiss()


def committed_offsets(scene: Scene) -> dict[str, dict[int, tuple[int, str]]]:
    found = scene.cluster.patiently(lambda: scene.cluster.committed(scene.names.group))
    if not found:
        raise NotFired(f"group {scene.names.group} has committed nothing")
    return found


def set_group(scene: Scene, offsets: dict[str, dict[int, tuple[int, str]]]) -> None:
    for topic, at in offsets.items():
        scene.cluster.patiently(partial(scene.cluster.commit, scene.names.group, topic, at))


@scenario("F27", "group-reset", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def group_reset(scene: Scene) -> None:
    """A tool sets the group's offsets back to the start while the pipeline is down; tools write no metadata."""
    _stop_somewhere(scene)
    set_group(scene, {topic: dict.fromkeys(at, (0, "")) for topic, at in committed_offsets(scene).items()})


@scenario("F27", "group-set-back", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def group_set_back(scene: Scene) -> None:
    """The same, by something that leaves the metadata as it was."""
    _stop_somewhere(scene)
    set_group(
        scene, {topic: {p: (0, said) for p, (_, said) in at.items()} for topic, at in committed_offsets(scene).items()}
    )


@scenario("F27", "older-ledger", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def older_ledger(scene: Scene) -> None:
    """The group's newest commits are gone, as after a failover to a copy that lagged; their output is still there."""
    first, later = scene.hold_at(Step.DELIVERED, 1), scene.hold_at(Step.PLANNED, 3)
    scene.start()
    scene.strike(first)
    older = committed_offsets(scene)
    first.release()
    scene.strike(later)
    scene.kill()
    set_group(scene, older)


@scenario("F27", "offsets-expired", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def offsets_expired(scene: Scene) -> None:
    _stop_somewhere(scene)
    scene.cluster.delete_group(scene.names.group)
    if scene.cluster.patiently(lambda: scene.cluster.committed(scene.names.group)):
        raise NotFired(f"group {scene.names.group} could not be deleted")


@scenario("F27", "database-restored", needs=(Need.RESTORABLE,), may_refuse=True)
def database_restored(scene: Scene) -> None:
    """Output and ledger come back together from an older copy: what the ledger says is what the table holds."""
    written = scene.written
    if written is None or not isinstance(written, Restorable):
        raise NotFired("the sink's output cannot be copied")
    copies: list[Callable[[], None]] = []
    stop_after_two(scene, lambda: copies.append(written.copy()))
    copies[0]()


@scenario("F27", "topic-made-again", needs=(Need.PROCESSING,), may_refuse=True)
def topic_made_again(scene: Scene) -> None:
    """The input topic is deleted and made again with the same records: another topic under the same name."""
    _stop_somewhere(scene)
    scene.cluster.delete_topic(scene.names.input, wait=True)
    scene.feed.prepare(scene.workload.partitions)
    scene.feed.give(scene.workload.head)


@scenario("F30", "retention-overtakes", may_refuse=True)
def retention_overtakes(scene: Scene) -> None:
    """Half of what is still unread is removed while the subject is down."""
    _stop_somewhere(scene)
    remove_unread(scene)


def remove_unread(scene: Scene) -> None:
    """Half of what lies beyond everything that was read so far."""
    ends = scene.cluster.offsets(scene.names.input)
    done = _progress(scene)
    cut = {p: (done.get(p, 0) + end + 1) // 2 for p, end in ends.items() if done.get(p, 0) < end}
    if not cut:
        raise NotFired("everything had been read before")
    scene.cluster.delete_records(scene.names.input, cut)
    scene.input_removed = True


def _progress(scene: Scene) -> dict[int, int]:
    """What was committed through the proxy, and where the batches ended that a pipeline planned."""
    found: dict[int, int] = {}
    for entry in scene.history.of("offset_commit", "txn_offset_commit"):
        for topic, partition, offset in entry.facts.offsets:
            if topic == scene.names.input and entry.acknowledged:
                found[partition] = max(found.get(partition, 0), offset)
    for planned in planned_ends(scene.history):
        for place, offset in planned.items():
            topic, _, number = place.rpartition("/")
            if topic == scene.names.input:
                found[int(number)] = max(found.get(int(number), 0), offset)
    return found
