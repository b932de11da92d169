"""The group coordinator: which group a request means, which protocol it speaks, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Decision, Deferred, ProducerIdAndEpoch
from atonce.coordinator.groups.classic.group import ClassicGroup
from atonce.coordinator.groups.classic.rebalance import JoinAnswer, SyncAnswer
from atonce.coordinator.groups.classic.requests import JoinRequest, SyncRequest
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.consumer.group import ConsumerGroup
from atonce.coordinator.groups.consumer.records import (
    ConsumerGroupEpoch,
    ConsumerMemberRecord,
    ConsumerRecord,
    CurrentAssignment,
    TargetAssignment,
    TargetEpoch,
)
from atonce.coordinator.groups.consumer.requests import MEMBER_TIMERS, HeartbeatAnswer, HeartbeatRequest, tombstones
from atonce.coordinator.groups.offset_log import EXPIRY_TIMER, Group, OffsetsOfGroups, group_tombstones
from atonce.coordinator.groups.offset_requests import (
    FetchedOffset,
    OffsetToCommit,
)
from atonce.coordinator.groups.records import GroupRecord, OffsetRecord
from atonce.coordinator.groups.states import ClassicState, ConsumerState
from atonce.coordinator.turn import Turn
from atonce.errors import InvariantError

__all__ = [
    "FetchedOffset",
    "GroupConfig",
    "GroupCoordinator",
    "HeartbeatRequest",
    "JoinRequest",
    "OffsetToCommit",
    "SyncRequest",
]

_CONSUMER_RECORDS = (ConsumerGroupEpoch, ConsumerMemberRecord, CurrentAssignment, TargetAssignment, TargetEpoch)

_RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCoordinator(OffsetsOfGroups):
    # -- classic members ----------------------------------------------------------------------------------------

    def join_group(self, now_ms: int, request: JoinRequest) -> Decision[JoinAnswer]:
        turn = Turn(now_ms)
        error = ErrorCode.none
        if not request.group_id:
            error = ErrorCode.invalid_group_id
        elif not self._session_allowed(request.session_timeout_ms):
            error = ErrorCode.invalid_session_timeout
        elif request.group_id not in self._groups and request.member_id:
            error = ErrorCode.unknown_member_id
        if error is not ErrorCode.none:
            return turn.decide(JoinAnswer(error=error, member_id=request.member_id))
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                joined = self._mixed.join_classic(turn, group, request)
                # A static one may have taken the place of the last who spoke the new protocol.
                self._mixed.downgrade(turn, group)
                return turn.decide(joined)
            # Nobody is left who speaks the new protocol: the group goes back to the classic one, with its offsets.
            turn.records += tombstones(group)
            group = None
        if group is None:
            group = self._groups[request.group_id] = ClassicGroup(group_id=request.group_id)
        answer = self._classic.join(turn, group, request)
        return turn.decide(answer)

    def _session_allowed(self, session_timeout_ms: int) -> bool:
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        return low <= session_timeout_ms <= high

    def sync_group(self, now_ms: int, request: SyncRequest) -> Decision[SyncAnswer]:
        turn = Turn(now_ms)
        mixed = self.describe_consumer_group(request.group_id)
        if mixed is not None:
            return turn.decide(self._mixed.sync_classic(turn, mixed, request))
        group = self._classic_group(request.group_id)
        if group is None:
            return turn.decide(SyncAnswer(error=_no_group(request.group_id)))
        answer: SyncAnswer | Deferred = self._classic.sync(turn, group, request)
        return turn.decide(answer)

    def heartbeat(
        self, now_ms: int, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Decision[ErrorCode]:
        turn = Turn(now_ms)
        mixed = self.describe_consumer_group(group_id)
        if mixed is not None:
            return turn.decide(self._mixed.heartbeat_classic(turn, mixed, member_id, instance_id, generation))
        group = self._classic_group(group_id)
        if group is None:
            return turn.decide(_no_group(group_id))
        return turn.decide(self._classic.heartbeat(turn, group, member_id, instance_id, generation))

    def leave_group(
        self, now_ms: int, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> Decision[list[ErrorCode]]:
        """Members as (member id, instance id); one answer for each."""
        turn = Turn(now_ms)
        mixed = self.describe_consumer_group(group_id)
        if mixed is not None:
            answers = self._mixed.leave_classic(turn, mixed, members)
            self._mixed.downgrade(turn, mixed)
            return turn.decide(answers)
        group = self._classic_group(group_id)
        if group is None:
            return turn.decide([_no_group(group_id)] * len(members))
        return turn.decide([self._classic.leave(turn, group, *member) for member in members])

    def _classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- members under the new protocol -------------------------------------------------------------------------

    def consumer_heartbeat(self, now_ms: int, request: HeartbeatRequest) -> Decision[HeartbeatAnswer]:
        turn = Turn(now_ms)
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) or group is None:
            answer = self._consumer.heartbeat(turn, group, request)
            if group is not None and request.epoch < 0 and answer.error is ErrorCode.none:
                self._mixed.downgrade(turn, group)
            return turn.decide(answer)
        if group.state is not ClassicState.EMPTY or group.pending_joins:
            return turn.decide(self._upgrade(turn, group, request))
        # An empty classic group changes over; its offsets stay.
        answer = self._consumer.heartbeat(turn, None, request)
        if answer.error is ErrorCode.none:
            turn.records.insert(0, GroupRecord(request.group_id, None))
        return turn.decide(answer)

    def _upgrade(self, turn: Turn, old: ClassicGroup, request: HeartbeatRequest) -> HeartbeatAnswer:
        """A member of the new protocol joins a classic group: the group changes over with all its members."""
        group = self._mixed.upgraded(turn, old) if request.epoch == 0 else None
        if group is None:
            message = f"Group {request.group_id} is not a consumer group."
            return HeartbeatAnswer(error=ErrorCode.group_id_not_found, message=message)
        answer = self._consumer.heartbeat(turn, group, request)
        if answer.error is ErrorCode.none:
            self._mixed.upgrade_begun(turn, old, group)
        return answer

    # -- groups as administrators see them ----------------------------------------------------------------------

    def delete_groups(self, now_ms: int, group_ids: Sequence[str]) -> Decision[dict[str, ErrorCode]]:
        turn = Turn(now_ms)
        answers: dict[str, ErrorCode] = {}
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is None:
                answers[group_id] = ErrorCode.group_id_not_found
            elif group.state not in (ClassicState.EMPTY, ConsumerState.EMPTY):
                answers[group_id] = ErrorCode.non_empty_group
            else:
                self._offsets.delete_all(turn, group_id)
                turn.records += group_tombstones(group)
                answers[group_id] = ErrorCode.none
        return turn.decide(answers)

    def describe_group(self, group_id: str) -> ClassicGroup | None:
        return self._classic_group(group_id)

    def describe_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def assignor_of(self, group: ConsumerGroup) -> str:
        return group.preferred_assignor(self._config.group_consumer_assignors[0])

    def list_groups(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> list[ListedGroup]:
        """Filters are compared without regard to case; empty ones let everything through."""
        found = [_listed(group) for group in self._groups.values()]
        wanted_states, wanted_types = {s.lower() for s in states}, {t.lower() for t in types}
        return [
            g
            for g in found
            if (not wanted_states or g.state.lower() in wanted_states)
            and (not wanted_types or g.group_type in wanted_types)
        ]

    # -- time ---------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def expire(self, now_ms: int) -> Decision[None] | None:
        """The next thing that time has decided; None when nothing is due."""
        key = self._timers.due(now_ms)
        if key is None:
            return None
        self._timers.cancel(key)
        turn = Turn(now_ms)
        kind, group_id, member_id = key
        if key == EXPIRY_TIMER:
            self._expire_offsets(turn)
        elif isinstance(group := self._groups.get(group_id), ConsumerGroup):
            # Due again if the journal cannot take the decision; a member that is gone has no timers (see apply).
            self._timers.set(key, now_ms + _RETRY_MS)
            self._consumer.timed_out(turn, group, member_id, kind)
            self._mixed.downgrade(turn, group)
        elif group is not None:
            self._classic_timer(turn, kind, group, member_id)
        return turn.decide(None)

    def _classic_timer(self, turn: Turn, kind: str, group: ClassicGroup, member_id: str) -> None:
        if kind == "session":
            self._rebalance.session_timed_out(turn, group, member_id)
        elif kind == "join":
            self._rebalance.join_timed_out(turn, group)
        elif kind == "sync":
            self._rebalance.sync_timed_out(turn, group)
        elif kind == "pending":
            self._rebalance.forget_pending(turn, group, member_id)
        elif kind == "rebalance" and group.rebalance_due:
            self._rebalance.prepare_rebalance(turn, group)

    # -- apply --------------------------------------------------------------------------------------------------

    def apply(self, record: object, producer: ProducerIdAndEpoch | None = None) -> None:
        if isinstance(record, OffsetRecord):
            self._offsets.apply(record, producer)
            if record.committed is not None and record.group_id not in self._groups:
                self._groups[record.group_id] = ClassicGroup(group_id=record.group_id)
        elif isinstance(record, GroupRecord):
            self._apply_classic(record)
        elif isinstance(record, _CONSUMER_RECORDS):
            self._apply_consumer(record)
        elif record is not None:
            raise InvariantError(f"{record!r} is no record of the group coordinator")

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """A transaction that committed offsets has ended: they become visible, or vanish."""
        self._offsets.offsets.apply_marker(producer_id, commit)

    def _apply_classic(self, record: GroupRecord) -> None:
        group = self._classic_group(record.group_id)
        if record.snapshot is not None:
            if group is None:
                group = self._groups[record.group_id] = ClassicGroup(group_id=record.group_id)
            group.install(record.snapshot)
            if group.rebalance_due:
                self._rebalance.left_behind(group, record.snapshot.state_ms)
        elif group is not None:
            self._rebalance.cancel_timers(group)
            del self._groups[record.group_id]

    def _apply_consumer(self, record: ConsumerRecord) -> None:
        group = self.describe_consumer_group(record.group_id)
        if isinstance(record, ConsumerGroupEpoch) and record.epoch is None:
            if group is not None:
                del self._groups[record.group_id]
            return
        if group is None:
            if _removes(record):
                return  # of a group that is gone: compaction has left its tombstones
            group = self._groups[record.group_id] = ConsumerGroup(group_id=record.group_id)
        group.apply(record)
        if isinstance(record, ConsumerMemberRecord) and record.subscription is None:
            for kind in MEMBER_TIMERS:
                self._timers.cancel((kind, record.group_id, record.member_id))

    def recovered(self, now_ms: int) -> None:
        """The journal was read to its end: give every member a session's time to be heard of."""
        turn = Turn(now_ms)
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                self._consumer.recovered(turn, group)
                continue
            for member in group.members.values():
                self._rebalance.heard_from(turn, group, member)
        self._timers.set(EXPIRY_TIMER, now_ms + self._config.offsets_retention_check_interval_ms)


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, "consumer", group.state.value, "consumer")
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")


def _removes(record: ConsumerRecord) -> bool:
    match record:
        case ConsumerMemberRecord(_, _, value) | TargetAssignment(_, _, value) | CurrentAssignment(_, _, value):
            return value is None
        case TargetEpoch(_, epoch) | ConsumerGroupEpoch(_, epoch):
            return epoch is None


def _no_group(group_id: str) -> ErrorCode:
    return ErrorCode.unknown_member_id if group_id else ErrorCode.invalid_group_id
