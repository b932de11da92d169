"""What members of classic groups ask for: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Deferred
from atonce.coordinator.groups.classic.group import ClassicGroup, ClassicMember
from atonce.coordinator.groups.classic.rebalance import ClassicRebalance, JoinAnswer, SyncAnswer, joined
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.records import GroupRecord
from atonce.coordinator.groups.states import ClassicState
from atonce.coordinator.timers import Timers
from atonce.coordinator.turn import TimerKey, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_id: bool = False  # JoinGroup 4 and later: a new member gets its id first and asks again
    knows_skip_assignment: bool = False  # JoinGroup 9 and later


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class ClassicRequests:
    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerKey],
        rebalance: ClassicRebalance,
        new_token: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._timers = timers
        self._rebalance = rebalance
        self._new_token = new_token
        self._new_id = new_id

    # -- join ---------------------------------------------------------------------------------------------------

    def join(self, turn: Turn, group: ClassicGroup, request: JoinRequest) -> JoinAnswer | Deferred:
        if group.state is ClassicState.DEAD:
            return _refused(request, ErrorCode.coordinator_not_available)
        if not self._has_room(group, request):
            return _refused(request, ErrorCode.group_max_size_reached)
        if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            return _refused(request, ErrorCode.inconsistent_group_protocol)
        if not request.member_id:
            if request.instance_id is not None:
                return self._join_static(turn, group, request, request.instance_id)
            return self._join_new(turn, group, request)
        if request.member_id in group.pending_joins and request.instance_id is None:
            self._timers.cancel(("pending", group.group_id, request.member_id))
            return self._add(turn, group, request, request.member_id)
        error = group.member_error(request.member_id, request.instance_id)
        if error is not ErrorCode.none:
            return _refused(request, error)
        return self._rejoin(turn, group, request, group.members[request.member_id])

    def _has_room(self, group: ClassicGroup, request: JoinRequest) -> bool:
        known = request.member_id in group.members or request.instance_id in group.static_members
        taken = len(group.members) + len(group.pending_joins - {request.member_id})
        return known or taken < self._config.group_max_size

    def _join_new(self, turn: Turn, group: ClassicGroup, request: JoinRequest) -> JoinAnswer | Deferred:
        member_id = f"{request.client_id}-{self._new_id()}"
        if not request.requires_known_id:
            return self._add(turn, group, request, member_id)
        group.pending_joins.add(member_id)
        self._timers.set(("pending", group.group_id, member_id), turn.now_ms + request.session_timeout_ms)
        return JoinAnswer(error=ErrorCode.member_id_required, member_id=member_id)

    def _add(self, turn: Turn, group: ClassicGroup, request: JoinRequest, member_id: str) -> Deferred:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            is_new=True,
            awaiting_join=self._new_token(),
        )
        if group.state is ClassicState.PREPARING_REBALANCE:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        self._rebalance.heard_from(turn, group, member)
        return self._wait_for_join(turn, group, member)

    def _wait_for_join(self, turn: Turn, group: ClassicGroup, member: ClassicMember) -> Deferred:
        token = member.awaiting_join
        if token is None:
            token = member.awaiting_join = self._new_token()
        self._rebalance.maybe_rebalance(turn, group)
        return Deferred(token)

    def _rejoin(
        self, turn: Turn, group: ClassicGroup, request: JoinRequest, member: ClassicMember
    ) -> JoinAnswer | Deferred:
        unchanged = member.protocols == request.protocols
        if group.state is ClassicState.COMPLETING_REBALANCE and unchanged:
            # It has joined this generation; the answer got lost.
            return joined(group, member.member_id)
        if group.state is ClassicState.STABLE and unchanged and member.member_id != group.leader:
            return joined(group, member.member_id)
        if group.state is ClassicState.EMPTY:
            return _refused(request, ErrorCode.unknown_member_id)
        # The leader may force a rebalance by joining again: topics may have changed.
        self._update(turn, group, request, member)
        return self._wait_for_join(turn, group, member)

    def _update(self, turn: Turn, group: ClassicGroup, request: JoinRequest, member: ClassicMember) -> None:
        turn.answer(member.awaiting_join, _refused(request, ErrorCode.rebalance_in_progress))  # an older try
        member.awaiting_join = None
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        self._rebalance.heard_from(turn, group, member)

    def _join_static(
        self, turn: Turn, group: ClassicGroup, request: JoinRequest, instance_id: str
    ) -> JoinAnswer | Deferred:
        member_id = f"{instance_id}-{self._new_id()}"
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            return self._add(turn, group, request, member_id)
        old_leader = group.leader
        self._timers.cancel(("session", group.group_id, old_id))
        member = group.replace_static(old_id, member_id)
        fenced = ErrorCode.fenced_instance_id
        turn.answer(member.awaiting_join, JoinAnswer(error=fenced, member_id=old_id))
        turn.answer(member.awaiting_sync, SyncAnswer(error=fenced))
        member.awaiting_join = member.awaiting_sync = None
        self._update(turn, group, request, member)
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol:
            return self._wait_for_join(turn, group, member)
        # A static member that comes back in a stable group disturbs nobody.
        turn.records.append(GroupRecord(group.group_id, group.snapshot(turn.now_ms)))
        leads = group.leader == member_id
        if request.knows_skip_assignment:
            return joined(group, member_id, skip_assignment=leads)
        # An older client that finds itself the leader would assign anew: it is told of the leader that was.
        answer = joined(group, member_id)
        return JoinAnswer(
            error=ErrorCode.none,
            member_id=member_id,
            generation=answer.generation,
            protocol_type=answer.protocol_type,
            protocol=answer.protocol,
            leader=old_leader or "",
        )

    # -- sync ---------------------------------------------------------------------------------------------------

    def sync(self, turn: Turn, group: ClassicGroup, request: SyncRequest) -> SyncAnswer | Deferred:
        error = self._member_in_generation(group, request.member_id, request.instance_id, request.generation)
        if error is ErrorCode.none and _differs(request.protocol_type, group.protocol_type):
            error = ErrorCode.inconsistent_group_protocol
        if error is ErrorCode.none and _differs(request.protocol, group.protocol):
            error = ErrorCode.inconsistent_group_protocol
        if error is ErrorCode.none and group.state is ClassicState.EMPTY:
            error = ErrorCode.unknown_member_id
        if error is ErrorCode.none and group.state is ClassicState.PREPARING_REBALANCE:
            error = ErrorCode.rebalance_in_progress
        if error is not ErrorCode.none:
            return SyncAnswer(error=error)
        member = group.members[request.member_id]
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(("sync", group.group_id, ""))
        self._rebalance.heard_from(turn, group, member)
        if group.state is ClassicState.STABLE:
            return self._assigned(group, member.assignment)
        turn.answer(member.awaiting_sync, SyncAnswer(error=ErrorCode.rebalance_in_progress))  # an older try of its own
        member.awaiting_sync = token = self._new_token()
        if member.member_id == group.leader:
            self._assign(turn, group, dict(request.assignments))
        return Deferred(token)

    def _assign(self, turn: Turn, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader has decided who gets what. In force once the record is applied, told once it is durable."""
        turn.records.append(GroupRecord(group.group_id, group.snapshot(turn.now_ms, assignments)))
        for member in group.members.values():
            turn.answer(member.awaiting_sync, self._assigned(group, assignments.get(member.member_id, b"")))

    def _assigned(self, group: ClassicGroup, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(
            error=ErrorCode.none,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            assignment=assignment,
        )

    # -- heartbeat, leave ---------------------------------------------------------------------------------------

    def heartbeat(
        self, turn: Turn, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        error = self._member_in_generation(group, member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        if group.state is ClassicState.EMPTY:
            return ErrorCode.unknown_member_id
        self._rebalance.heard_from(turn, group, group.members[member_id])
        rebalancing = group.state is ClassicState.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if rebalancing else ErrorCode.none

    def leave(self, turn: Turn, group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id and instance_id is not None:
            # An administrator removes a static member by its instance id.
            if instance_id not in group.static_members:
                return ErrorCode.unknown_member_id
            member_id = group.static_members[instance_id]
        elif member_id in group.pending_joins:
            self._rebalance.forget_pending(turn, group, member_id)
            return ErrorCode.none
        error = group.member_error(member_id, instance_id)
        if error is ErrorCode.none:
            self._rebalance.remove(turn, group, group.members[member_id])
        return error

    def _member_in_generation(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        if group.state is ClassicState.DEAD:
            return ErrorCode.coordinator_not_available
        error = group.member_error(member_id, instance_id)
        if error is ErrorCode.none and generation != group.generation:
            return ErrorCode.illegal_generation
        return error


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and told != known


def _refused(request: JoinRequest, error: ErrorCode) -> JoinAnswer:
    return JoinAnswer(error=error, member_id=request.member_id)
