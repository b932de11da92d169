"""F3, F4, F9, F17, F24: what a network does to single requests, or to all of them."""

from __future__ import annotations

import time

from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import Need
from atonce.verify.faults.registry import armed, scenario
from atonce.verify.scene import Scene
from atonce.verify.wire.rules import Action, Rule

REQUEST_TIMED_OUT = 7
COMMITS = ("offset_commit", "txn_offset_commit")


@armed("F3", "ack-lost", short=True)
def ack_lost(scene: Scene) -> Rule:
    return scene.armed("produce", action=Action.DROP_RESPONSE, topic=scene.names.output)


@armed("F3", "request-arrives-twice", levels=(Guarantee.NONE, Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE))
def arrives_twice(scene: Scene) -> Rule:
    """What a retry by anything between client and broker amounts to; at most once without idempotence has no answer."""
    return scene.armed("produce", action=Action.DUPLICATE, topic=scene.names.output)


@armed("F4", "cut-before-arrival", short=True)
def cut_before_arrival(scene: Scene) -> Rule:
    return scene.armed("produce", action=Action.DROP_REQUEST, topic=scene.names.output)


@armed("F4", "commit-cut", needs=(Need.TRANSACTIONS,), short=True)
def commit_cut(scene: Scene) -> Rule:
    return scene.armed("end_txn", action=Action.DROP_REQUEST)


@armed("F4", "fence-cut", needs=(Need.TRANSACTIONS,))
def fence_cut(scene: Scene) -> Rule:
    """The claim's own InitProducerId gets lost with its connection."""
    return scene.armed("init_producer_id", action=Action.DROP_REQUEST)


@armed("F3", "commit-answer-lost", needs=(Need.TRANSACTIONS,), short=True)
def commit_answer_lost(scene: Scene) -> Rule:
    return scene.armed("end_txn", action=Action.DROP_RESPONSE)


@armed("F3", "offsets-answer-lost", needs=(Need.TRANSACTIONS,))
def offsets_answer_lost(scene: Scene) -> Rule:
    return scene.armed("txn_offset_commit", action=Action.DROP_RESPONSE)


@armed("F3", "fence-answer-lost", needs=(Need.TRANSACTIONS,))
def fence_answer_lost(scene: Scene) -> Rule:
    """The older instance is fenced, and the newer one does not hear of it."""
    return scene.armed("init_producer_id", action=Action.DROP_RESPONSE)


@scenario("F9", "older-commit-late", options={"auto.commit.interval.ms": "50"})
def older_commit_late(scene: Scene) -> None:
    """An OffsetCommit is delayed until a newer one has succeeded; then the subject is killed and reads its progress."""
    late = scene.rule(*COMMITS, action=Action.DELAY, nth=1, only_if=lambda _, f: bool(f.offsets))
    scene.start()
    scene.strike(late)
    since = late.fired_at or time.time()
    scene.until(
        lambda: sum(1 for e in scene.history.of(*COMMITS) if e.at > since and e.acknowledged) >= 2,
        scene.limits.fire_s,
        "a newer commit",
    )
    late.release()
    late.wait_released(15)
    scene.kill()


@armed("F17", "one-of-several-fails", short=True)
def one_of_several_fails(scene: Scene) -> Rule:
    return scene.armed(
        "produce",
        action=Action.FAIL,
        topic=scene.names.output,
        error=REQUEST_TIMED_OUT,
        only_if=lambda _, facts: facts.acks != 0,
    )


def _cut_off(scene: Scene) -> None:
    scene.after.append(scene.proxy.heal)
    if scene.counts.get("produce"):
        scene.inject("produce", action=Action.CALL_BESIDE, topic=scene.names.output, call=scene.proxy.partition)
    else:
        scene.inject("fetch", action=Action.CALL_BESIDE, call=scene.proxy.partition)


def _partition(scene: Scene, *, cut: bool) -> None:
    _cut_off(scene)
    time.sleep(scene.rng.uniform(1.0, 2.0))  # how long the network is away; nothing else ends it
    scene.proxy.heal(cut=cut)


@scenario("F24", "heals", short=True)
def partition_heals(scene: Scene) -> None:
    """What was held back arrives after all, as TCP has it."""
    _partition(scene, cut=False)


@scenario("F24", "connections-lost")
def partition_cuts(scene: Scene) -> None:
    """Nothing that was under way arrives."""
    _partition(scene, cut=True)


@scenario("F24", "killed-while-away", levels=(Guarantee.EFFECTIVELY_ONCE, Guarantee.AT_LEAST_ONCE))
def killed_while_away(scene: Scene) -> None:
    """The subject dies while it cannot reach the broker; what it had sent arrives after its successor has begun."""
    _cut_off(scene)
    scene.subject.kill(0)
    scene.proxy.heal()
    scene.dismiss()
