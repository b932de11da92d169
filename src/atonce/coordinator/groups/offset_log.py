"""Offsets as groups commit them, ask for them and lose them: who may, and when they expire."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Decision, ProducerIdAndEpoch, TopicPartition, Topics
from atonce.coordinator.groups.classic.group import ClassicGroup
from atonce.coordinator.groups.classic.rebalance import ClassicRebalance
from atonce.coordinator.groups.classic.requests import ClassicRequests
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.consumer.group import ConsumerGroup
from atonce.coordinator.groups.consumer.requests import ConsumerRequests, tombstones
from atonce.coordinator.groups.mixed_requests import MixedRequests
from atonce.coordinator.groups.offset_requests import (
    FetchedOffset,
    OffsetRequests,
    OffsetToCommit,
    classic_commit_error,
    classic_expiry,
)
from atonce.coordinator.groups.records import GroupRecord
from atonce.coordinator.groups.states import ClassicState
from atonce.coordinator.timers import Timers
from atonce.coordinator.turn import TimerKey, Turn

Group = ClassicGroup | ConsumerGroup

EXPIRY_TIMER: TimerKey = ("offsets", "", "")


class OffsetsOfGroups:
    """The groups, and what they have committed. `GroupCoordinator` is this and all else that groups do."""

    def __init__(
        self, config: GroupConfig, topics: Topics, new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers: Timers[TimerKey] = Timers()
        self._tokens = count(1)
        self._groups: dict[str, Group] = {}
        self._rebalance = ClassicRebalance(config, self._timers)
        self._classic = ClassicRequests(config, self._timers, self._rebalance, lambda: next(self._tokens), new_id)
        self._consumer = ConsumerRequests(config, topics, self._timers, new_id)
        self._mixed = MixedRequests(config, topics, self._timers, self._consumer, new_id)
        self._offsets = OffsetRequests(config)

    # -- offsets ------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        now_ms: int,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Sequence[OffsetToCommit],
        *,
        retention_ms: int = -1,
        knows_no_group: bool = True,
    ) -> Decision[dict[TopicPartition, ErrorCode]]:
        """`knows_no_group`: OffsetCommit 9 and later are told GROUP_ID_NOT_FOUND, older ones ILLEGAL_GENERATION."""
        turn = Turn(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            error = group.commit_error(member_id, instance_id, generation, transactional=False)
            if error is ErrorCode.stale_member_epoch and not knows_no_group:
                error = ErrorCode.unsupported_version
        elif group is not None:
            error = classic_commit_error(group, member_id, instance_id, generation, transactional=False)
        elif generation < 0:
            error = ErrorCode.none  # a group without members, only to keep offsets in
        else:
            error = ErrorCode.group_id_not_found if knows_no_group else ErrorCode.illegal_generation
        if error is not ErrorCode.none:
            return turn.decide({offset.partition: error for offset in offsets})
        if isinstance(group, ClassicGroup) and member_id in group.members:
            self._rebalance.heard_from(turn, group, group.members[member_id])
        return turn.decide(self._offsets.commit(turn, group_id, offsets, retention_ms=retention_ms))

    def commit_offsets_in_transaction(
        self,
        now_ms: int,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Sequence[OffsetToCommit],
        producer: ProducerIdAndEpoch,
    ) -> Decision[dict[TopicPartition, ErrorCode]]:
        """The transaction coordinator must have said, in the same turn, that the producer's transaction is open."""
        turn = Turn(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            error = group.commit_error(member_id, instance_id, generation, transactional=True)
        elif group is not None:
            error = classic_commit_error(group, member_id, instance_id, generation, transactional=True)
        else:
            error = ErrorCode.none if generation < 0 else ErrorCode.illegal_generation
        if error is not ErrorCode.none:
            return turn.decide({offset.partition: error for offset in offsets})
        return turn.decide(self._offsets.commit(turn, group_id, offsets), producer)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Decision[tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]]:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            error = group.fetch_error(member_id, member_epoch)
            if error is not ErrorCode.none:
                return Decision((error, {}))
        return Decision((ErrorCode.none, self._offsets.fetch(group_id, partitions, require_stable=require_stable)))

    def delete_offsets(
        self, now_ms: int, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Decision[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]]:
        turn = Turn(now_ms)
        group = self._groups.get(group_id)
        if group is None:
            error = ErrorCode.group_id_not_found if group_id else ErrorCode.invalid_group_id
            return turn.decide((error, {}))
        subscribed: frozenset[str] = frozenset()
        if isinstance(group, ConsumerGroup):
            subscribed = group.subscribed_topics(self._topics)
        elif group.state is not ClassicState.EMPTY:
            known = group.subscribed_topics()
            if known is None:
                return turn.decide((ErrorCode.non_empty_group, {}))
            subscribed = known
        return turn.decide((ErrorCode.none, self._offsets.delete(turn, group_id, partitions, subscribed)))

    def topics_deleted(self, now_ms: int, topics: frozenset[str]) -> Decision[None]:
        turn = Turn(now_ms)
        self._offsets.delete_topics(turn, topics)
        return turn.decide(None)

    def _expire_offsets(self, turn: Turn) -> None:
        """Offsets age while nobody uses them; a group that has nothing left is forgotten."""
        self._timers.set(EXPIRY_TIMER, turn.now_ms + self._config.offsets_retention_check_interval_ms)
        for group in list(self._groups.values()):
            offsets = self._offsets.offsets.of_group(group.group_id)
            if isinstance(group, ConsumerGroup):
                subscribed = group.subscribed_topics(self._topics)
                since_ms = {p: o.commit_ms for p, o in offsets.items() if p.topic not in subscribed}
                unused = not group.members
            else:
                since_ms = classic_expiry(group, offsets)
                unused = group.state is ClassicState.EMPTY and not group.pending_joins
            if self._offsets.expire(turn, group.group_id, since_ms) and unused:
                turn.records += group_tombstones(group)


def group_tombstones(group: Group) -> list[object]:
    return [*tombstones(group)] if isinstance(group, ConsumerGroup) else [GroupRecord(group.group_id, None)]
