"""F12, F13, F23, F28: the broker's disk is full, its files are damaged, its cluster loses a node."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from atonce.connectors.contract import NotFired
from atonce.errors import AtOnceError
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import scenario
from atonce.verify.ground.harness import FreezesNodes
from atonce.verify.scene import Scene
from atonce.verify.subject.contract import Ending
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.decode import Facts
from atonce.verify.wire.history import WRITES
from atonce.verify.wire.rules import Action

KAFKA_STORAGE_ERROR = 56


def broker_down(scene: Scene, action: Action, *apis: str, nth: int | None = None, **more: Any) -> None:
    """SIGKILL at exactly that request. It is started again at the end of the run at the latest."""
    topic = scene.names.output if apis == ("produce",) else None
    scene.after.append(scene.harness.restart)
    scene.inject(*apis, action=action, nth=nth, topic=topic, call=scene.harness.kill, **more)
    scene.history.mark("broker-killed")


def broker_back(scene: Scene) -> None:
    """On the same data and port."""
    scene.harness.restart()
    scene.after.remove(scene.harness.restart)
    scene.history.mark("broker-started")


@scenario("F12", "disk-full")
def disk_full(scene: Scene) -> None:
    """The embedded broker's files may not grow for a while; an Apache Kafka's Produce is answered as a full disk is."""
    if Need.EMBEDDED not in scene.harness.needs_met():
        scene.inject(
            "produce",
            action=Action.FAIL,
            topic=scene.names.output,
            error=KAFKA_STORAGE_ERROR,
            only_if=lambda _, facts: facts.acks != 0,
        )
        return
    process = psutil.Process(scene.harness.pid())
    _, hard = process.rlimit(psutil.RLIMIT_FSIZE)

    def give_room() -> None:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))

    def fill() -> None:
        process.rlimit(psutil.RLIMIT_FSIZE, (256, hard))

    scene.after.append(give_room)
    since = scene.inject("produce", action=Action.CALL_BESIDE, topic=scene.names.output, call=fill).fired_at or 0.0
    if Need.ACKS in scene.needs:
        scene.until(lambda: _refused(scene, since) or not process.is_running(), 10, "a write that a full disk refuses")
    else:
        time.sleep(1.0)  # nobody asks for an answer: how long the disk is full
    if process.is_running():
        give_room()
    else:
        scene.harness.restart()


def _refused(scene: Scene, since: float) -> bool:
    """The output, or what the coordinator keeps about its transaction: whichever came first could not be written."""
    return any((entry.answered_at or 0.0) >= since and entry.errors for entry in scene.history.of(*WRITES))


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


def _acknowledged_segment(scene: Scene) -> Path:
    """The broker killed, and a log file of the output whose first batch it had acknowledged, as we saw."""
    produced: list[Facts] = []

    def remember(_: Any, facts: Facts) -> bool:
        produced.append(facts)
        return True

    broker_down(scene, Action.CALL_AFTER, "produce", only_if=remember)
    scene.subject.kill(0)
    # The last one is where it struck: its answer had reached the proxy. Others may still have been on their way.
    acked = {(topic, partition) for topic, partition, _ in produced[-1].batches}
    acked |= {(topic, partition) for e in scene.history.of("produce") for topic, partition, _ in e.base_offsets}
    folders = {f"{topic}-{partition}" for topic, partition in acked if topic == scene.names.output}
    files = [path for path in scene.harness.data().rglob("*.log") if path.parent.name in folders]
    if not files:
        raise NotFired(f"no log file of {scene.names.output} holds anything that was acknowledged")
    return max(files, key=lambda path: path.stat().st_size)


def _first_batch(content: bytes) -> int:
    """Its size: 12 bytes of offset and length, and then as many as the length says."""
    return 12 + int.from_bytes(content[8:12], "big")


@scenario("F13", "torn-tail")
def torn_tail(scene: Scene) -> None:
    """Half of a batch that was never acknowledged stands at the end: cut off, and nobody notices."""
    broker_down(scene, Action.CALL_AFTER, "produce")
    scene.subject.kill(0)
    path = _segment(scene)
    with path.open("ab") as file:
        file.write(path.read_bytes()[:70])
    broker_back(scene)


def _damage(scene: Scene, what: str, damaged: Callable[[bytes], bytes]) -> None:
    """The broker must refuse what it had acknowledged and cannot read any more, naming file and position."""
    path = _acknowledged_segment(scene)
    before = path.read_bytes()
    path.write_bytes(damaged(before))
    refusal = _refusal(scene)
    if refusal:
        scene.notes.append(f"refused: {refusal[-300:]}")
        scene.refusal_seen = Ending(1, refusal, refused=True)
    else:
        scene.served_damage = what
    scene.harness.kill()
    path.write_bytes(before)
    broker_back(scene)


def _refusal(scene: Scene) -> str:
    """What the broker says when it starts on the damage; empty when it serves it."""
    try:
        scene.harness.restart()
        check = Cluster(scene.harness.servers)
        try:
            check.patiently(lambda: check.offsets(scene.names.output), 5)
        finally:
            check.close()
    except AtOnceError as error:
        return str(error)
    return ""


@scenario("F13", "flipped-bit", may_refuse=True)
def flipped_bit(scene: Scene) -> None:
    def flip(content: bytes) -> bytes:
        at = _first_batch(content) * 2 // 3
        return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]

    _damage(scene, "a flipped bit in what was acknowledged", flip)


@scenario("F13", "truncated", may_refuse=True)
def truncated(scene: Scene) -> None:
    _damage(scene, "half of what was acknowledged", lambda content: content[: _first_batch(content) // 2])


def _leader_gone(scene: Scene, *, freeze: bool) -> None:
    harness = scene.harness
    if not isinstance(harness, FreezesNodes):
        raise NotFired("this needs nodes that can be killed one by one")
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

    scene.after.append(back)
    scene.inject("produce", action=Action.CALL_BESIDE, topic=scene.names.output, call=away)
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
