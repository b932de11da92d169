"""What the clean run shows of a subject: what it sends, and which faults can therefore strike it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from atonce.connectors.contract import CutsCommits, GivesOldestLast, Restorable
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.feeds import TopicFeed
from atonce.verify.scene import Scene

COUNTED = ("produce", "offset_commit", "txn_offset_commit", "end_txn", "init_producer_id", "join_group")
_FETCHES = 4
"""A subject that reads at all asks that often; where a fault strikes a read it strikes one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many requests of each API it sent."""
    batches: int = 0
    """How many batches an AtOnce pipeline delivered."""
    met: frozenset[Need] = frozenset()
    commits_to_the_end: bool = False
    """A command whose group had committed all its input in the end."""


def learn(scene: Scene) -> Learned:
    history = scene.history
    counts = {api: sum(1 for _ in history.of(api)) for api in COUNTED}
    counts["produce"] = sum(1 for entry in history.of("produce") if scene.names.output in entry.facts.topics)
    counts["fetch"] = _FETCHES
    transactional = [entry for entry in history.of("produce") if entry.facts.transactional_id]
    from_topic = isinstance(scene.feed, TopicFeed)
    shown = {
        Need.PRODUCES: bool(counts["produce"]),
        Need.ACKS: any(entry.facts.acks not in (0, None) for entry in history.of("produce")),
        Need.PROCESSING: from_topic,
        Need.PUBLISHING: not from_topic,
        Need.FILES: scene.feed.files,
        Need.OLDEST_LAST: isinstance(scene.feed, GivesOldestLast),
        Need.KAFKA_OUTPUT: scene.watch is not None,
        Need.KAFKA_LEDGER: scene.watch is not None and scene.subject.steps,
        Need.RESTORABLE: isinstance(scene.written, Restorable),
        Need.CUT_COMMITS: isinstance(scene.server, CutsCommits),
        Need.TRANSACTIONS: bool(transactional),
        Need.TRANSACTIONS_V2: any(entry.version >= 12 for entry in transactional),
        Need.COMMITS: bool(counts["offset_commit"] or counts["txn_offset_commit"]),
        Need.GROUP: bool(counts["join_group"]),
        Need.OWN_DATABASE: scene.server is not None and scene.server.server is not None,
    }
    own = scene.subject.needs_met() | scene.harness.needs_met()
    return Learned(
        counts=counts,
        batches=sum(1 for mark in history.marks if mark.what == "step" and mark.detail == "delivered"),
        met=frozenset(own | {need for need, met in shown.items() if met}),
        commits_to_the_end=scene.subject.endless and scene.committed_to_the_end(),
    )
