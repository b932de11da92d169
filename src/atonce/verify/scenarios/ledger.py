"""F27, F30: the ledger is set back behind the checkpoint's back, or the input is removed before it was read."""

from __future__ import annotations

from atonce.engine.observer import Step
from atonce.verify.faults import Need
from atonce.verify.rules import Action, NotFired
from atonce.verify.scenarios.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.workload import publish


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


@scenario("F27", "group-reset", needs=(Need.KAFKA_LEDGER,), may_refuse=True)
def group_reset(scene: Scene) -> None:
    """A tool sets the group's offsets back to the start while the pipeline is down."""
    _stop_somewhere(scene)
    group = scene.names.group
    committed = scene.cluster.patiently(lambda: scene.cluster.committed(group)).get(scene.names.input, {})
    if not committed:
        raise NotFired(f"group {group} has committed nothing on {scene.names.input}")
    scene.cluster.patiently(
        lambda: scene.cluster.commit(group, scene.names.input, {p: (0, words) for p, (_, words) in committed.items()})
    )


@scenario("F27", "topic-made-again", may_refuse=True)
def topic_made_again(scene: Scene) -> None:
    """The input topic is deleted and made again with the same records: another topic under the same name."""
    _stop_somewhere(scene)
    scene.cluster.delete_topic(scene.names.input)
    scene.cluster.create_topic(scene.names.input, scene.workload.partitions)
    publish(scene.cluster, scene.names.input, scene.workload.head)


@scenario("F30", "retention-overtakes", may_refuse=True)
def retention_overtakes(scene: Scene) -> None:
    """Half of what is still unread is removed while the subject is down."""
    _stop_somewhere(scene)
    ends = scene.cluster.offsets(scene.names.input)
    done = _progress(scene)
    cut = {p: (done.get(p, 0) + end + 1) // 2 for p, end in ends.items() if done.get(p, 0) < end}
    if not cut:
        raise NotFired("everything had been read before the subject was stopped")
    scene.cluster.delete_records(scene.names.input, cut)
    scene.input_removed = True


def _progress(scene: Scene) -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in scene.history.of("offset_commit", "txn_offset_commit"):
        for topic, partition, offset in entry.facts.offsets:
            if topic == scene.names.input and entry.acknowledged:
                found[partition] = max(found.get(partition, 0), offset)
    return found
