"""Groups whose members change over to the new protocol, or back, while they run (KIP-848).

A consumer of the new protocol that joins a classic group turns it into one of the new protocol; the members of the
classic one stay in it and go on sending JoinGroup, SyncGroup, Heartbeat and LeaveGroup, answered here from the same
server-side assignment. When the last one of the new protocol has gone, the group turns back. Either way one batch of
records in the journal is the change, so a crash leaves one kind of group or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Topics
from atonce.coordinator.groups.classic.group import ClassicGroup, ClassicMember
from atonce.coordinator.groups.classic.rebalance import JoinAnswer, SyncAnswer
from atonce.coordinator.groups.classic.requests import JoinRequest, SyncRequest
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.consumer.group import ConsumerGroup, metadata_hash
from atonce.coordinator.groups.consumer.protocol import (
    NAME,
    MemberSubscription,
    NotUnderstood,
    read_assignment,
    read_subscription,
    write_assignment,
)
from atonce.coordinator.groups.consumer.records import (
    Assignment,
    ClassicPart,
    ConsumerGroupEpoch,
    ConsumerMemberRecord,
    ConsumerRecord,
    Current,
    CurrentAssignment,
    Subscription,
    TargetAssignment,
    TargetEpoch,
    assignment,
)
from atonce.coordinator.groups.consumer.requests import ConsumerRequests, Draft
from atonce.coordinator.groups.records import GroupRecord, GroupSnapshot, MemberSnapshot
from atonce.coordinator.groups.states import MemberState
from atonce.coordinator.timers import Timers
from atonce.coordinator.turn import TimerKey, Turn


class MixedRequests:
    """Further timers: `consumer-join` (a classic member that must join again), `consumer-sync` (one that has)."""

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        timers: Timers[TimerKey],
        consumer: ConsumerRequests,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers
        self._consumer = consumer
        self._new_id = new_id

    # -- from the classic protocol ------------------------------------------------------------------------------

    def upgraded(self, turn: Turn, old: ClassicGroup) -> ConsumerGroup | None:
        """The same group under the new protocol, its records in the turn; None if it may not, or cannot, change."""
        allowed = self._config.group_consumer_migration_policy in ("bidirectional", "upgrade")
        if not allowed or old.protocol_type != NAME or len(old.members) > self._config.group_consumer_max_size:
            return None
        group = ConsumerGroup(group_id=old.group_id)
        draft = Draft(Turn(turn.now_ms), group)
        try:
            for member in old.members.values():
                self._take_over(draft, old, member)
        except NotUnderstood:
            return None
        hashed = metadata_hash(group.subscribed_topics(self._topics), self._topics)
        draft.emit(ConsumerGroupEpoch(old.group_id, old.generation, hashed))
        draft.emit(TargetEpoch(old.group_id, old.generation))
        turn.records += [GroupRecord(old.group_id, None), *draft.turn.records]
        return group

    def _take_over(self, draft: Draft, old: ClassicGroup, member: ClassicMember) -> None:
        group_id, member_id = old.group_id, member.member_id
        said = read_subscription(member.metadata(old.protocol) or member.protocols[0][1])
        held = self._by_id(read_assignment(member.assignment))
        subscription = Subscription(
            instance_id=member.instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=tuple(sorted(set(said.topics))),
            regex=None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicPart(member.session_timeout_ms, member.protocols),
        )
        stable = Current(
            epoch=old.generation,
            previous_epoch=old.generation,
            state=MemberState.STABLE,
            assigned=held,
            revoking=(),
        )
        draft.emit(ConsumerMemberRecord(group_id, member_id, subscription))
        draft.emit(TargetAssignment(group_id, member_id, held))
        draft.emit(CurrentAssignment(group_id, member_id, stable))

    def upgrade_begun(self, turn: Turn, old: ClassicGroup, group: ConsumerGroup) -> None:
        """Whoever waits in the classic group is sent to join again."""
        for member in old.members.values():
            again = ErrorCode.rebalance_in_progress
            turn.answer(member.awaiting_join, JoinAnswer(error=again, member_id=member.member_id))
            turn.answer(member.awaiting_sync, SyncAnswer(error=again))
            self._consumer.schedule(turn, group, member.member_id, stepped=False)

    # -- and back -----------------------------------------------------------------------------------------------

    def downgrade(self, turn: Turn, before: ConsumerGroup) -> None:
        """If only classic members are left after this turn, make the group theirs; it is rebalanced right after."""
        after = before.copy()
        for record in turn.records:
            after.apply(record)  # type: ignore[arg-type]
        allowed = self._config.group_consumer_migration_policy in ("bidirectional", "downgrade")
        if not allowed or not after.members or len(after.members) > self._config.group_max_size:
            return
        if any(subscription.classic is None for subscription in after.members.values()):
            return
        # The epoch of before: members that had reached it go on with it until they join again.
        snapshot = self._classic_snapshot(turn, after, before.epoch)
        turn.records[:] = [*_removed(before, after), GroupRecord(before.group_id, snapshot)]

    def _classic_snapshot(self, turn: Turn, group: ConsumerGroup, generation: int) -> GroupSnapshot:
        """Without a leader: that is how a group that must be rebalanced is known again after a restart."""
        protocol = _common_protocols(group, except_for=None)[0]
        return GroupSnapshot(
            protocol_type=NAME,
            generation=generation,
            protocol=protocol,
            leader=None,
            state_ms=turn.now_ms,
            members=tuple(
                MemberSnapshot(
                    member_id=member_id,
                    instance_id=s.instance_id,
                    client_id=s.client_id,
                    client_host=s.client_host,
                    rebalance_timeout_ms=s.rebalance_timeout_ms,
                    session_timeout_ms=s.classic.session_timeout_ms if s.classic else 0,
                    subscription=dict(s.classic.protocols if s.classic else ()).get(protocol, b""),
                    assignment=self._told(group, member_id, 0),
                )
                for member_id, s in group.members.items()
            ),
        )

    # -- what classic members of such a group ask for -----------------------------------------------------------

    def join_classic(self, turn: Turn, group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        draft = Draft(turn, group.copy())
        error, said = self._may_join(draft.group, request)
        if said is None:
            return JoinAnswer(error=error, member_id=request.member_id)
        if not request.member_id and request.instance_id is None and request.requires_known_id:
            return JoinAnswer(error=ErrorCode.member_id_required, member_id=f"{request.client_id}-{self._new_id()}")
        member_id = self._classic_id(draft, request)
        before = draft.group.current(member_id)
        subscribed_anew = self._subscribe_classic(draft, request, member_id, said)
        current, stepped = self._consumer.advance(draft, member_id, before, self._by_id(said.owned), subscribed_anew)
        self._consumer.schedule(turn, draft.group, member_id, stepped=stepped)
        self._timers.cancel(("consumer-join", group.group_id, member_id))
        self._timers.set(("consumer-sync", group.group_id, member_id), turn.now_ms + request.rebalance_timeout_ms)
        return JoinAnswer(
            error=ErrorCode.none,
            member_id=member_id,
            generation=current.epoch,
            protocol_type=NAME,
            protocol=request.protocols[0][0],
        )

    def _may_join(self, group: ConsumerGroup, request: JoinRequest) -> tuple[ErrorCode, MemberSubscription | None]:
        known_as = None if request.instance_id is None else group.static_member(request.instance_id)
        if request.member_id and request.instance_id is not None and known_as != request.member_id:
            return ErrorCode.fenced_instance_id if known_as else ErrorCode.unknown_member_id, None
        if (known_as or request.member_id) not in group.members:
            if len(group.members) >= self._config.group_consumer_max_size:
                return ErrorCode.group_max_size_reached, None
        elif not known_as and group.members[request.member_id].classic is None:
            return ErrorCode.unknown_member_id, None
        common = _common_protocols(group, except_for=known_as or request.member_id)
        names = [name for name, _ in request.protocols]
        if request.protocol_type != NAME or not names or (common and not set(names) & set(common)):
            return ErrorCode.inconsistent_group_protocol, None
        try:
            return ErrorCode.none, read_subscription(request.protocols[0][1])
        except NotUnderstood:
            return ErrorCode.inconsistent_group_protocol, None

    def _classic_id(self, draft: Draft, request: JoinRequest) -> str:
        member_id = request.member_id or f"{request.instance_id or request.client_id}-{self._new_id()}"
        known_as = None if request.instance_id is None else draft.group.static_member(request.instance_id)
        if known_as is not None and known_as != member_id:
            self._consumer.replace_static(draft, known_as, member_id)
        return member_id

    def _subscribe_classic(self, draft: Draft, request: JoinRequest, member_id: str, said: MemberSubscription) -> bool:
        old = draft.group.members.get(member_id)
        new = Subscription(
            instance_id=request.instance_id,
            rack_id=said.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=tuple(sorted(set(said.topics))),
            regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicPart(request.session_timeout_ms, request.protocols),
        )
        if new != old:
            draft.emit(ConsumerMemberRecord(draft.group.group_id, member_id, new))
        return old is None or (new.topics, new.regex) != (old.topics, old.regex)

    def sync_classic(self, turn: Turn, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        member_id = request.member_id
        error = _classic_error(group, member_id, request.instance_id, request.generation)
        if error is not ErrorCode.none:
            return SyncAnswer(error=error)
        part = group.members[member_id].classic
        protocol, subscription = part.protocols[0] if part else ("", b"")
        if request.protocol_type not in (None, NAME) or request.protocol not in (None, protocol):
            return SyncAnswer(error=ErrorCode.inconsistent_group_protocol)
        current = group.current(member_id)
        if group.epoch > current.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(turn, group, member_id)
            return SyncAnswer(error=ErrorCode.rebalance_in_progress)
        self._timers.cancel(("consumer-sync", group.group_id, member_id))
        self._consumer.schedule(turn, group, member_id, stepped=False)
        told = self._told(group, member_id, read_subscription(subscription).version)
        return SyncAnswer(error=ErrorCode.none, protocol_type=NAME, protocol=protocol, assignment=told)

    def heartbeat_classic(
        self, turn: Turn, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        error = _classic_error(group, member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        self._consumer.schedule(turn, group, member_id, stepped=False)
        if self._must_join(group, member_id):
            self._expect_join(turn, group, member_id)
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave_classic(
        self, turn: Turn, group: ConsumerGroup, members: Iterable[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        draft, answers = Draft(turn, group.copy()), []
        for given_id, instance_id in members:
            known_as = None if instance_id is None else draft.group.static_member(instance_id)
            member_id = known_as if not given_id and known_as is not None else given_id
            error = _classic_error(draft.group, member_id, instance_id, None)
            answers.append(error)
            if error is ErrorCode.none:
                self._consumer.remove(draft, member_id)
        return answers

    def _must_join(self, group: ConsumerGroup, member_id: str) -> bool:
        """It lags behind, has to give something back, or what it waits for is free now."""
        current = group.current(member_id)
        if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if current.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        has = {(t, n) for t, numbers in current.assigned for n in numbers}
        wanted = {(t, n) for t, numbers in group.targets.get(member_id, ()) for n in numbers}
        return bool((wanted - has) - group.owned_by_others(member_id))

    def _expect_join(self, turn: Turn, group: ConsumerGroup, member_id: str) -> None:
        key = ("consumer-join", group.group_id, member_id)
        if self._timers.deadline(key) is None:
            self._timers.set(key, turn.now_ms + group.members[member_id].rebalance_timeout_ms)

    # -- topics by name and by id -------------------------------------------------------------------------------

    def _by_id(self, named: Iterable[tuple[str, Iterable[int]]]) -> Assignment:
        found: dict[UUID, set[int]] = {}
        for name, numbers in named:
            topic_id = self._topics.topic_id(name)
            if topic_id is not None:
                found.setdefault(topic_id, set()).update(numbers)
        return assignment(found)

    def _told(self, group: ConsumerGroup, member_id: str, version: int) -> bytes:
        """A member's partitions as classic consumers read them."""
        held = group.current(member_id).assigned
        named = [(self._topics.topic_name(topic_id), numbers) for topic_id, numbers in held]
        return write_assignment(version, [(name, numbers) for name, numbers in named if name is not None])


def _classic_error(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None) -> ErrorCode:
    """Who calls himself so: a classic member of this generation, one that was replaced, or nobody?"""
    if instance_id is not None:
        known_as = group.static_member(instance_id)
        if known_as is None:
            return ErrorCode.unknown_member_id
        if known_as != member_id:
            return ErrorCode.fenced_instance_id
    if member_id not in group.members or group.members[member_id].classic is None:
        return ErrorCode.unknown_member_id
    if generation is not None and generation != group.current(member_id).epoch:
        return ErrorCode.illegal_generation
    return ErrorCode.none


def _common_protocols(group: ConsumerGroup, except_for: str | None) -> list[str]:
    """The names that all classic members (but one) know, as the first of them orders them; empty if there is none."""
    known = [
        [name for name, _ in subscription.classic.protocols]
        for member_id, subscription in group.members.items()
        if subscription.classic is not None and member_id != except_for
    ]
    return [name for name in known[0] if all(name in names for names in known)] if known else []


def _removed(before: ConsumerGroup, after: ConsumerGroup) -> list[ConsumerRecord]:
    group_id, records = before.group_id, list[ConsumerRecord]()
    for member_id in {**before.members, **after.members}:
        records.append(CurrentAssignment(group_id, member_id, None))
        records.append(TargetAssignment(group_id, member_id, None))
        records.append(ConsumerMemberRecord(group_id, member_id, None))
    return [*records, TargetEpoch(group_id, None), ConsumerGroupEpoch(group_id, None)]
