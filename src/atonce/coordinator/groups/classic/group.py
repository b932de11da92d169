"""A group under the classic protocol: its members, the rebalance under way, and what of it is journaled.

Membership in the making is volatile, as in Kafka: after a restart the last completed generation is there again, its
members go on with their heartbeats, and whoever was joining joins again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from atonce.coordinator.groups.records import GroupSnapshot, MemberSnapshot
from atonce.coordinator.groups.states import ClassicState, check_classic_transition
from atonce.coordinator.wire import Reader
from atonce.errors import AtOnceError

CONSUMER_PROTOCOL = "consumer"


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: int | None = None  # tokens of the requests that wait
    awaiting_sync: int | None = None

    @property
    def is_waiting(self) -> bool:
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True, kw_only=True)
class ClassicGroup:
    group_id: str
    state: ClassicState = ClassicState.EMPTY
    state_ms: int | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: set[str] = field(default_factory=set)  # ids given out with MEMBER_ID_REQUIRED
    pending_syncs: set[str] = field(default_factory=set)
    new_member_added: bool = False  # since the initial rebalance delay was last extended
    journaled: bool = False  # whether a group record, or an offset, speaks of it

    @property
    def rebalance_due(self) -> bool:
        """Members without a leader were left behind by a group of the new protocol (`mixed_requests.py`)."""
        return self.state is ClassicState.STABLE and self.leader is None and bool(self.members)

    def go(self, state: ClassicState, now_ms: int) -> None:
        check_classic_transition(self.group_id, self.state, state)
        self.state = state
        self.state_ms = now_ms

    # -- members ------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """A static member came back under its instance id: it takes its place under a new member id."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[member.instance_id or ""] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        return member

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Who calls himself so: a member, a static member that was replaced, or nobody?"""
        if instance_id is not None:
            known_as = self.static_members.get(instance_id)
            if known_as is None:
                return ErrorCode.unknown_member_id
            if known_as != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending_joins and all(m.awaiting_join is not None for m in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who has joined; False if nobody has."""
        joined = [m.member_id for m in self.members.values() if m.awaiting_join is not None]
        if not joined:
            return not self.members
        if self.leader not in joined:
            self.leader = joined[0]
        return True

    # -- protocols ----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and any(name in self._common_protocols() for name in names)

    def _common_protocols(self) -> set[str]:
        counts = Counter(name for member in self.members.values() for name, _ in member.protocols)
        return {name for name, count in counts.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all have."""
        common = self._common_protocols()
        votes = Counter(next(name for name, _ in m.protocols if name in common) for m in self.members.values())
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        if self.members:
            self.protocol = self.select_protocol()
            self.go(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.go(ClassicState.EMPTY, now_ms)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics its consumers have subscribed to; None if that is not known."""
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None or not self.members:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(Reader(member.metadata(self.protocol)).array(Reader.string))
            except (AtOnceError, UnicodeDecodeError):
                return None  # a client's own format: then all its topics count as subscribed
        return frozenset(topics)

    # -- journal ------------------------------------------------------------------------------------------------

    def snapshot(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> GroupSnapshot:
        """This generation, with the assignments the leader has just sent or those that are in force."""
        return GroupSnapshot(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=now_ms,
            members=tuple(
                MemberSnapshot(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol),
                    assignment=m.assignment if assignments is None else assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    def install(self, snapshot: GroupSnapshot) -> None:
        """Make the journaled generation the one in force, live as in recovery."""
        self.journaled = True
        self.protocol_type = snapshot.protocol_type or None
        self.generation = snapshot.generation
        self.protocol = snapshot.protocol
        self.leader = snapshot.leader
        self.state_ms = snapshot.state_ms
        self.state = ClassicState.STABLE if snapshot.members else ClassicState.EMPTY
        for gone in set(self.members) - {m.member_id for m in snapshot.members}:
            self.remove(gone)
        for kept in snapshot.members:
            member = self.members.get(kept.member_id)
            if member is None:
                member = ClassicMember(
                    member_id=kept.member_id,
                    instance_id=kept.instance_id,
                    client_id=kept.client_id,
                    client_host=kept.client_host,
                    rebalance_timeout_ms=kept.rebalance_timeout_ms,
                    session_timeout_ms=kept.session_timeout_ms,
                    protocols=((snapshot.protocol or "", kept.subscription),),
                )
                self.members[kept.member_id] = member
                if kept.instance_id is not None:
                    self.static_members[kept.instance_id] = kept.member_id
            member.assignment = kept.assignment
            member.awaiting_sync = None
        self.leader = snapshot.leader
        self.pending_syncs &= set(self.members)
