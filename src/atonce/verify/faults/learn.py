"""What the clean run shows of a subject: what it sends, and which faults can therefore strike it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atonce.connectors.contract import CutsCommits, GivesOldestLast, MadeAgain, Restorable
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.feeds import TopicFeed
from atonce.verify.scene import Scene
from atonce.verify.wire.history import Mark

COUNTED = ("produce", "offset_commit", "txn_offset_commit", "end_txn", "init_producer_id", "join_group")
_FETCHES = 4
"""A subject that reads at all asks that often; where a fault strikes a read it strikes one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many requests of each API it sent."""
    batches: int = 0
    """How many batches an AtOnce pipeline delivered of what was there at its start."""
    met: frozenset[Need] = frozenset()
    commits_to_the_end: bool = False
    """A command whose group had committed all its input in the end."""


def learn(scene: Scene) -> Learned:
    history = scene.history
    counts = {api: sum(1 for _ in history.of(api)) for api in COUNTED}
    counts["produce"] = sum(1 for entry in history.of("produce") if scene.names.output in entry.facts.topics)
    counts["fetch"] = _FETCHES
    transactional = [entry for entry in history.of("produce") if entry.facts.transactional_id]
    newer = any(entry.version >= 12 for entry in transactional)
    from_topic = isinstance(scene.feed, TopicFeed)
    shown = {
        Need.PRODUCES: bool(counts["produce"]),
        Need.ACKS: any(entry.facts.acks not in (0, None) for entry in history.of("produce")),
        Need.PROCESSING: from_topic,
        Need.PUBLISHING: not from_topic,
        Need.FILES: scene.feed.files,
        Need.OLDEST_LAST: isinstance(scene.feed, GivesOldestLast),
        Need.MADE_AGAIN: isinstance(scene.feed, MadeAgain),
        Need.KAFKA_OUTPUT: scene.watch is not None,
        Need.KAFKA_LEDGER: scene.watch is not None and scene.subject.steps,
        Need.RESTORABLE: isinstance(scene.written, Restorable),
        Need.CUT_COMMITS: isinstance(scene.server, CutsCommits),
        Need.TRANSACTIONS: bool(transactional),
        Need.TRANSACTIONS_V1: bool(transactional) and not newer,
        Need.EPOCH_PER_TRANSACTION: newer or (bool(transactional) and scene.subject.steps),
        Need.COMMITS: bool(counts["offset_commit"] or counts["txn_offset_commit"]),
        Need.GROUP: bool(counts["join_group"]),
        Need.OWN_DATABASE: scene.server is not None and scene.server.server is not None,
    }
    own = scene.subject.needs_met() | scene.harness.needs_met()
    return Learned(
        counts=counts,
        batches=_at_first(history.marks),
        met=frozenset(own | {need for need, met in shown.items() if met}),
        commits_to_the_end=scene.subject.endless and scene.committed_to_the_end(),
    )


def _at_first(marks: Sequence[Mark]) -> int:
    """How many batches were delivered before it was started once more, for the rest: a faulted run has as many."""
    starts = [at for at, mark in enumerate(marks) if mark.what == "started"]
    until = starts[1] if len(starts) > 1 else len(marks)
    return sum(1 for mark in marks[:until] if mark.what == "step" and mark.detail == "delivered")
