"""F11, F12, F13, F23, F28: the broker dies, its disk is full, its files are damaged, its cluster loses a node."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import psutil

from atonce.errors import AtOnceError
from atonce.verify.cluster import Cluster
from atonce.verify.faults import Need
from atonce.verify.harness import Apache
from atonce.verify.rules import Action, NotFired
from atonce.verify.scenarios.registry import scenario
from atonce.verify.scene import Scene
from atonce.verify.subject_contract import Ending

KAFKA_STORAGE_ERROR = 56


def kill_broker_at(scene: Scene, action: Action, *apis: str, nth: int | None = None) -> None:
    """SIGKILL at exactly that request; started again on the same data and port."""
    topic = scene.names.output if apis == ("produce",) else None
    rule = scene.rule(*apis, action=action, nth=nth or scene.some(*apis), topic=topic, call=scene.harness.kill)
    scene.after.append(scene.harness.restart)
    scene.start()
    scene.strike(rule)
    scene.history.mark("broker-killed")
    scene.harness.restart()
    scene.after.remove(scene.harness.restart)
    scene.history.mark("broker-started")


@scenario("F11", "before-append")
def before_append(scene: Scene) -> None:
    kill_broker_at(scene, Action.CALL_BEFORE, "produce")


@scenario("F11", "after-append-before-ack", short=True)
def after_append(scene: Scene) -> None:
    kill_broker_at(scene, Action.CALL_AFTER, "produce")


@scenario("F11", "between-flushes")
def between_flushes(scene: Scene) -> None:
    """Killed while it works on a Produce: in memory, or half on disk."""
    kill_broker_at(scene, Action.CALL_WITH, "produce")


@scenario("F12", "disk-full")
def disk_full(scene: Scene) -> None:
    """The embedded broker's files may not grow for a while; an Apache Kafka's Produce is answered as a full disk is."""
    if Need.EMBEDDED not in scene.harness.needs_met():
        rule = scene.rule(
            "produce",
            action=Action.FAIL,
            nth=scene.some("produce"),
            topic=scene.names.output,
            error=KAFKA_STORAGE_ERROR,
            only_if=lambda _, facts: facts.acks != 0,
        )
        scene.start()
        return scene.strike(rule)
    process = psutil.Process(scene.harness.pid())
    _, hard = process.rlimit(psutil.RLIMIT_FSIZE)

    def give_room() -> None:
        process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))

    def fill() -> None:
        process.rlimit(psutil.RLIMIT_FSIZE, (256, hard))

    rule = scene.rule(
        "produce", action=Action.CALL_BESIDE, nth=scene.some("produce"), topic=scene.names.output, call=fill
    )
    scene.after.append(give_room)
    scene.start()
    scene.strike(rule)
    time.sleep(1.0)  # how long the disk is full
    give_room()
    if not process.is_running():
        scene.harness.restart()
    return None


def _segment(scene: Scene) -> Path:
    """The largest log file of the output topic."""
    files = [
        path
        for path in scene.harness.data().rglob("*.log")
        if scene.names.output in str(path.parent.name) or scene.names.output in str(path)
    ]
    if not files:
        raise NotFired(f"no log file of {scene.names.output} was found below {scene.harness.data()}")
    return max(files, key=lambda path: path.stat().st_size)


def _with_broker_down(scene: Scene) -> Path:
    rule = scene.rule(
        "produce",
        action=Action.CALL_AFTER,
        nth=scene.some("produce"),
        topic=scene.names.output,
        call=scene.harness.kill,
    )
    scene.start()
    scene.strike(rule)
    scene.subject.kill(0)
    scene.history.mark("broker-killed")
    return _segment(scene)


@scenario("F13", "torn-tail")
def torn_tail(scene: Scene) -> None:
    """Half of a batch that was never acknowledged stands at the end: cut off, and nobody notices."""
    scene.after.append(scene.harness.restart)
    path = _with_broker_down(scene)
    with path.open("ab") as file:
        file.write(path.read_bytes()[:70])
    scene.harness.restart()
    scene.after.remove(scene.harness.restart)
    scene.history.mark("broker-started")


def _damaged(scene: Scene, what: str, before: bytes, path: Path) -> None:
    """The broker must refuse what it had acknowledged and cannot read any more, naming file and position."""
    try:
        scene.harness.restart()
        refusal = ""
        check = Cluster(scene.harness.servers)
        try:
            check.patiently(lambda: check.offsets(scene.names.output), 5)
            scene.notes.append(f"the broker serves a log with {what}")
        except AtOnceError as error:
            refusal = str(error)
        finally:
            check.close()
    except AtOnceError as error:
        refusal = str(error)
    scene.harness.kill()
    path.write_bytes(before)
    scene.harness.restart()
    if refusal:
        scene.notes.append(f"refused: {refusal[-300:]}")
        scene.refusal_seen = Ending(1, refusal, refused=True)
    else:
        scene.served_damage = what


@scenario("F13", "flipped-bit", may_refuse=True)
def flipped_bit(scene: Scene) -> None:
    path = _with_broker_down(scene)
    before = path.read_bytes()
    damaged = bytearray(before)
    damaged[len(damaged) // 3] ^= 0x10
    path.write_bytes(bytes(damaged))
    _damaged(scene, "a flipped bit in what was acknowledged", before, path)


@scenario("F13", "truncated", may_refuse=True)
def truncated(scene: Scene) -> None:
    path = _with_broker_down(scene)
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    _damaged(scene, "half of what was acknowledged", before, path)


def _leader_gone(scene: Scene, *, freeze: bool) -> None:
    harness = scene.harness
    if not isinstance(harness, Apache):
        raise NotFired("this needs three Apache Kafka nodes")
    node = scene.cluster.leader(scene.names.output, 0)

    def away() -> None:
        if freeze:
            harness.freeze(node)
        else:
            harness.kill(node)

    def back() -> None:
        if freeze:
            harness.thaw(node)
        else:
            harness.restart(node)

    rule = scene.rule(
        "produce", action=Action.CALL_BESIDE, nth=scene.some("produce"), topic=scene.names.output, call=away
    )
    scene.after.append(back)
    scene.start()
    scene.strike(rule)
    scene.history.mark("broker-killed", f"node {node}")
    others = Cluster(",".join(s for n, s in enumerate(harness.servers.split(","), 1) if n != node))
    try:
        scene.until(lambda: _moved(others, scene.names.output, node), 30, "another leader")
    finally:
        others.close()
    back()
    scene.after.remove(back)
    scene.history.mark("broker-started", f"node {node}")


def _moved(cluster: Cluster, topic: str, node: int) -> bool:
    try:
        return node not in cluster.refresh(topic).values()
    except (OSError, AtOnceError):
        return False


@scenario("F23", "leader-killed")
def leader_killed(scene: Scene) -> None:
    _leader_gone(scene, freeze=False)


@scenario("F28", "node-cut-off")
def node_cut_off(scene: Scene) -> None:
    """To the two others a frozen node is one that is cut off: they elect without it, and it returns with old ideas."""
    _leader_gone(scene, freeze=True)
