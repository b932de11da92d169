"""Rebalances of classic groups: when they start, whom they wait for, how they complete."""

from __future__ import annotations

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from atonce.coordinator.groups.classic.group import ClassicGroup, ClassicMember
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.records import GroupRecord
from atonce.coordinator.groups.states import ClassicState
from atonce.coordinator.timers import Timers
from atonce.coordinator.turn import TimerKey, Turn

# A new member does not know its id yet and cannot send heartbeats: it is kept this long while it waits.
NEW_MEMBER_TIMEOUT_MS = 300_000

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # id, instance id, metadata: for the leader only


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


def joined(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinAnswer:
    """What a member is told of the generation it is in; the leader is told of all members."""
    everyone = tuple((m.member_id, m.instance_id, m.metadata(group.protocol)) for m in group.members.values())
    return JoinAnswer(
        error=ErrorCode.none,
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        members=everyone if member_id == group.leader else (),
    )


class ClassicRebalance:
    """The timers are `session` (a member), `join` and `sync` (a group's rebalance), `pending` (an id given out)."""

    def __init__(self, config: GroupConfig, timers: Timers[TimerKey]) -> None:
        self._config = config
        self._timers = timers
        # Groups in their initial delay, and how much longer it may be extended.
        self._initial_left_ms: dict[str, int] = {}

    # -- start --------------------------------------------------------------------------------------------------

    def maybe_rebalance(self, turn: Turn, group: ClassicGroup) -> None:
        """Something about the members has changed: rebalance, or see whether the one under way is complete now."""
        if group.state is ClassicState.PREPARING_REBALANCE:
            self._maybe_complete_join(turn, group)
        elif group.state is not ClassicState.DEAD:
            self.prepare_rebalance(turn, group)

    def prepare_rebalance(self, turn: Turn, group: ClassicGroup) -> None:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            for member in group.members.values():
                turn.answer(member.awaiting_sync, SyncAnswer(error=ErrorCode.rebalance_in_progress))
                member.awaiting_sync = None
                member.assignment = b""
        group.pending_syncs.clear()
        self._timers.cancel(("sync", group.group_id, ""))
        initial = group.state is ClassicState.EMPTY
        group.go(ClassicState.PREPARING_REBALANCE, turn.now_ms)
        if initial:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._initial_left_ms[group.group_id] = max(0, group.rebalance_timeout_ms - delay_ms)
            group.new_member_added = False
            self._timers.set(("join", group.group_id, ""), turn.now_ms + delay_ms)
        else:
            self._timers.set(("join", group.group_id, ""), turn.now_ms + group.rebalance_timeout_ms)
            self._maybe_complete_join(turn, group)

    def _maybe_complete_join(self, turn: Turn, group: ClassicGroup) -> None:
        """Early, because everyone is there. The initial delay is always waited out: more may be on their way."""
        if group.all_joined and group.group_id not in self._initial_left_ms:
            self._complete_join(turn, group)

    def join_timed_out(self, turn: Turn, group: ClassicGroup) -> None:
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        left_ms = self._initial_left_ms.get(group.group_id, 0)
        if group.new_member_added and left_ms > 0:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            group.new_member_added = False
            self._initial_left_ms[group.group_id] = max(0, left_ms - delay_ms)
            self._timers.set(("join", group.group_id, ""), turn.now_ms + min(delay_ms, left_ms))
            return
        self._complete_join(turn, group)

    # -- complete -----------------------------------------------------------------------------------------------

    def _complete_join(self, turn: Turn, group: ClassicGroup) -> None:
        self._initial_left_ms.pop(group.group_id, None)
        self._timers.cancel(("join", group.group_id, ""))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self._forget(group, member)
        if not group.elect_joined_leader():
            # Only static members, and none is back: wait on, one of them has to lead.
            self._timers.set(("join", group.group_id, ""), turn.now_ms + group.rebalance_timeout_ms)
            return
        group.next_generation(turn.now_ms)
        if group.state is ClassicState.EMPTY:
            turn.records.append(GroupRecord(group.group_id, group.snapshot(turn.now_ms)))
            return
        for member in group.members.values():
            group.pending_syncs.add(member.member_id)
            turn.answer(member.awaiting_join, joined(group, member.member_id))
            member.awaiting_join = None
            member.is_new = False
            self.heard_from(turn, group, member)
        self._timers.set(("sync", group.group_id, ""), turn.now_ms + group.rebalance_timeout_ms)

    def sync_timed_out(self, turn: Turn, group: ClassicGroup) -> None:
        """Members that joined and never fetched their assignment are taken for gone."""
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not group.pending_syncs:
            return
        for member_id in sorted(group.pending_syncs):
            if member_id in group.members:
                self._forget(group, group.members[member_id])
        self.prepare_rebalance(turn, group)

    def left_behind(self, group: ClassicGroup, since_ms: int) -> None:
        """Members that a group of the new protocol has left behind: to be rebalanced, and heard of in the meantime."""
        self._timers.set(("rebalance", group.group_id, ""), since_ms)
        for member in group.members.values():
            self._timers.set(("session", group.group_id, member.member_id), since_ms + member.session_timeout_ms)

    def cancel_timers(self, group: ClassicGroup) -> None:
        """The group is gone, or is one of the new protocol now."""
        self._initial_left_ms.pop(group.group_id, None)
        for kind in ("join", "sync", "rebalance"):
            self._timers.cancel((kind, group.group_id, ""))
        for member_id in group.members:
            self._timers.cancel(("session", group.group_id, member_id))
        for member_id in group.pending_joins:
            self._timers.cancel(("pending", group.group_id, member_id))

    # -- members ------------------------------------------------------------------------------------------------

    def heard_from(self, turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
        timeout_ms = NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self._timers.set(("session", group.group_id, member.member_id), turn.now_ms + timeout_ms)

    def session_timed_out(self, turn: Turn, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if member.is_waiting and not member.is_new:
            self.heard_from(turn, group, member)  # it waits for us: we are the slow ones
        else:
            self.remove(turn, group, member)

    def remove(self, turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
        """A member left or was lost. If it is still waiting, it is told so."""
        turn.answer(member.awaiting_join, JoinAnswer(error=ErrorCode.unknown_member_id, member_id=member.member_id))
        turn.answer(member.awaiting_sync, SyncAnswer(error=ErrorCode.unknown_member_id))
        self._forget(group, member)
        if group.state is not ClassicState.EMPTY:
            self.maybe_rebalance(turn, group)

    def forget_pending(self, turn: Turn, group: ClassicGroup, member_id: str) -> None:
        """An id that was given out was never used, or given back."""
        self._timers.cancel(("pending", group.group_id, member_id))
        group.pending_joins.discard(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            self._maybe_complete_join(turn, group)

    def _forget(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._timers.cancel(("session", group.group_id, member.member_id))
        group.remove(member.member_id)
