"""What members under the new protocol send: one heartbeat for joining, staying, reconciling and leaving (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Topics
from atonce.coordinator.groups.assignors import ASSIGNORS, Candidate
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.consumer.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroup, metadata_hash
from atonce.coordinator.groups.consumer.records import (
    Assignment,
    ConsumerGroupEpoch,
    ConsumerMemberRecord,
    ConsumerRecord,
    Current,
    CurrentAssignment,
    Subscription,
    TargetAssignment,
    TargetEpoch,
)
from atonce.coordinator.groups.patterns import BadPattern, compiled
from atonce.coordinator.groups.reconcile import flat, reconcile
from atonce.coordinator.groups.states import MemberState
from atonce.coordinator.timers import Timers
from atonce.coordinator.turn import TimerKey, Turn

MEMBER_TIMERS = ("consumer-session", "consumer-revoke", "consumer-join", "consumer-sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """None where the member says nothing new."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Assignment | None = None


class _Refused(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class ConsumerRequests:
    """The timers are `consumer-session` (a member) and `consumer-revoke` (one that has to give partitions back)."""

    def __init__(
        self, config: GroupConfig, topics: Topics, timers: Timers[TimerKey], new_id: Callable[[], str]
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers
        self._new_id = new_id

    def heartbeat(self, turn: Turn, group: ConsumerGroup | None, request: HeartbeatRequest) -> HeartbeatAnswer:
        """`group` is None when there is none yet; the caller then installs what the records say."""
        try:
            self._check(request)
            if group is None and request.epoch != 0:
                raise _Refused(ErrorCode.group_id_not_found, f"Group {request.group_id} not found.")
            draft = Draft(turn, group.copy() if group is not None else ConsumerGroup(group_id=request.group_id))
            if request.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(draft, request)
            return self._stay(draft, request)
        except _Refused as refused:
            turn.records.clear()
            return HeartbeatAnswer(error=refused.error, message=str(refused))

    def _check(self, request: HeartbeatRequest) -> None:
        def require(good: bool, message: str, error: ErrorCode = ErrorCode.invalid_request) -> None:
            if not good:
                raise _Refused(error, message)

        require(bool(request.group_id), "GroupId can't be empty.")
        require(request.instance_id != "", "InstanceId can't be empty.")
        require(request.rack_id != "", "RackId can't be empty.")
        require(request.epoch >= STATIC_LEAVE_EPOCH, f"MemberEpoch {request.epoch} is invalid.")
        require(bool(request.member_id) or request.epoch == 0, "MemberId can't be empty.")
        if request.epoch == STATIC_LEAVE_EPOCH:
            require(request.instance_id is not None, "InstanceId can't be null.")
        if request.epoch == 0:
            require(request.rebalance_timeout_ms > 0, "RebalanceTimeoutMs must be provided in first request.")
            require(request.owned == (), "TopicPartitions must be empty when (re-)joining.")
            subscribed = request.topics is not None or request.regex is not None
            require(
                subscribed, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
        supported = self._config.group_consumer_assignors
        require(
            request.assignor is None or request.assignor in supported,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(supported)}.",
            ErrorCode.unsupported_assignor,
        )
        if request.regex:
            try:
                compiled(request.regex)
            except BadPattern as error:
                message = f"SubscribedTopicRegex `{request.regex}` is not a valid regular expression: {error}."
                raise _Refused(ErrorCode.invalid_regular_expression, message) from error

    # -- stay ---------------------------------------------------------------------------------------------------

    def _stay(self, draft: Draft, request: HeartbeatRequest) -> HeartbeatAnswer:
        group = draft.group
        member_id = self._identify(draft, request)
        before = group.current(member_id)
        subscribed_anew = self._subscribe(draft, request, member_id)
        current, stepped = self.advance(draft, member_id, before, request.owned, subscribed_anew)
        self.schedule(draft.turn, group, member_id, stepped=stepped)
        subscribed = request.topics is not None or request.regex is not None
        told_all = request.rebalance_timeout_ms > 0 and subscribed and request.owned is not None
        tell = request.epoch == 0 or told_all or flat(current.assigned) != flat(before.assigned)
        return HeartbeatAnswer(
            member_id=member_id,
            epoch=current.epoch,
            interval_ms=self._config.group_consumer_heartbeat_interval_ms,
            assignment=current.assigned if tell else None,
        )

    def advance(
        self, draft: Draft, member_id: str, before: Current, owned: Assignment | None, subscribed_anew: bool
    ) -> tuple[Current, bool]:
        """The member's next step towards its target, assigned anew if need be; and whether it is one."""
        group = draft.group
        hashed = metadata_hash(group.subscribed_topics(self._topics), self._topics)
        if subscribed_anew or hashed != group.metadata_hash:
            draft.bump(hashed)
        if group.epoch > group.target_epoch:
            self._assign(draft)
        target, taken = group.targets.get(member_id, ()), group.owned_by_others(member_id)
        current = reconcile(before, target, group.target_epoch, taken, owned)
        stepped = current != group.currents.get(member_id)
        if stepped:
            draft.emit(CurrentAssignment(group.group_id, member_id, current))
        return current, stepped

    def _identify(self, draft: Draft, request: HeartbeatRequest) -> str:
        """Whose heartbeat this is, with its epoch checked. A new member is added by its subscription, later."""
        group = draft.group
        member_id = request.member_id or self._new_id()
        known_as = None if request.instance_id is None else group.static_member(request.instance_id)
        if known_as is not None and known_as != member_id:
            if request.epoch != 0:
                raise _Refused(ErrorCode.fenced_instance_id, f"Instance {request.instance_id} is member {known_as}.")
            # One that still speaks the classic protocol cannot say that it will be back under the new one.
            if group.current(known_as).epoch != STATIC_LEAVE_EPOCH and group.members[known_as].classic is None:
                message = f"Static member {known_as} with instance id {request.instance_id} has not left."
                raise _Refused(ErrorCode.unreleased_instance_id, message)
            self.replace_static(draft, known_as, member_id)
            return member_id
        if member_id not in group.members:
            if request.epoch != 0:
                message = f"Member {member_id} is not a member of group {group.group_id}."
                raise _Refused(ErrorCode.unknown_member_id, message)
            if len(group.members) >= self._config.group_consumer_max_size:
                message = f"The consumer group has reached its maximum capacity of {len(group.members)} members."
                raise _Refused(ErrorCode.group_max_size_reached, message)
            return member_id
        current = group.current(member_id)
        if known_as is not None and request.epoch == 0 and current.epoch == STATIC_LEAVE_EPOCH:
            draft.emit(CurrentAssignment(group.group_id, member_id, replace(current, epoch=0, previous_epoch=0)))
            return member_id
        lost_answer = (
            request.epoch == current.previous_epoch
            and request.owned is not None
            and flat(request.owned) <= flat(current.assigned)
        )
        if request.epoch != current.epoch and not (request.epoch < current.epoch and lost_answer):
            message = f"The consumer group member has epoch {request.epoch}, and the group coordinator {current.epoch}."
            raise _Refused(
                ErrorCode.fenced_member_epoch, f"{message} The member must abandon its partitions and rejoin."
            )
        return member_id

    def replace_static(self, draft: Draft, old_id: str, new_id: str) -> None:
        """A static member came back: its target and what it had are its own again."""
        group = draft.group
        group_id, subscription = group.group_id, group.members[old_id]
        target, current = group.targets.get(old_id), group.current(old_id)
        self._forget(draft, old_id)
        draft.emit(ConsumerMemberRecord(group_id, new_id, subscription))
        if target is not None:
            draft.emit(TargetAssignment(group_id, new_id, target))
        draft.emit(CurrentAssignment(group_id, new_id, replace(current, epoch=0, previous_epoch=0)))

    def _subscribe(self, draft: Draft, request: HeartbeatRequest, member_id: str) -> bool:
        """Keep what the member says of itself; whether the group has to be assigned anew for it."""
        group = draft.group
        old = group.members.get(member_id)
        new = Subscription(
            instance_id=request.instance_id if old is None or request.instance_id else old.instance_id,
            rack_id=request.rack_id or (old.rack_id if old else None),
            client_id=request.client_id,
            client_host=request.client_host,
            topics=tuple(sorted(set(request.topics))) if request.topics is not None else old.topics if old else (),
            regex=(request.regex or None) if request.regex is not None else old.regex if old else None,
            rebalance_timeout_ms=request.rebalance_timeout_ms
            if request.rebalance_timeout_ms > 0
            else old.rebalance_timeout_ms
            if old
            else -1,
            assignor=request.assignor or (old.assignor if old else None),
        )
        if new != old:
            draft.emit(ConsumerMemberRecord(group.group_id, member_id, new))
        return old is None or (new.topics, new.regex) != (old.topics, old.regex)

    def _assign(self, draft: Draft) -> None:
        """The target assignment for the new group epoch."""
        group = draft.group
        candidates: dict[str, Candidate] = {}
        counts: dict[UUID, int] = {}
        for member_id, subscription in group.members.items():
            wanted = set()
            for name in group.subscribed(member_id, self._topics):
                topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
                if topic_id is not None and count:
                    wanted.add(topic_id)
                    counts[topic_id] = count
            current = group.targets.get(member_id, ())
            candidates[member_id] = Candidate(frozenset(wanted), current, subscription.instance_id)
        assignor = ASSIGNORS[group.preferred_assignor(self._config.group_consumer_assignors[0])]
        for member_id, target in assignor(candidates, dict(sorted(counts.items()))).items():
            if group.targets.get(member_id) != target:
                draft.emit(TargetAssignment(group.group_id, member_id, target))
        draft.emit(TargetEpoch(group.group_id, group.epoch))

    # -- leave --------------------------------------------------------------------------------------------------

    def _leave(self, draft: Draft, request: HeartbeatRequest) -> HeartbeatAnswer:
        group, member_id = draft.group, request.member_id
        if request.instance_id is not None:
            known_as = group.static_member(request.instance_id)
            if known_as is None:
                raise _Refused(ErrorCode.unknown_member_id, f"Instance id {request.instance_id} is unknown.")
            if known_as != member_id:
                raise _Refused(ErrorCode.fenced_instance_id, f"Instance {request.instance_id} is member {known_as}.")
        if member_id not in group.members:
            raise _Refused(
                ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
            )
        if request.epoch == STATIC_LEAVE_EPOCH:
            # It says that it will be back: its partitions wait for it, as long as its session lasts.
            away = replace(group.current(member_id), epoch=STATIC_LEAVE_EPOCH, revoking=())
            draft.emit(CurrentAssignment(group.group_id, member_id, away))
        else:
            self.remove(draft, member_id)
        return HeartbeatAnswer(member_id=member_id, epoch=request.epoch)

    def timed_out(self, turn: Turn, group: ConsumerGroup, member_id: str, kind: str) -> None:
        """A member fell silent, or did not give back in time what it was asked for."""
        if member_id not in group.members:
            return
        if kind == "consumer-revoke" and group.current(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            return
        self.remove(Draft(turn, group.copy()), member_id)

    def remove(self, draft: Draft, member_id: str) -> None:
        self._forget(draft, member_id)
        draft.bump(metadata_hash(draft.group.subscribed_topics(self._topics), self._topics))

    def _forget(self, draft: Draft, member_id: str) -> None:
        group_id = draft.group.group_id
        draft.emit(CurrentAssignment(group_id, member_id, None))
        draft.emit(TargetAssignment(group_id, member_id, None))
        draft.emit(ConsumerMemberRecord(group_id, member_id, None))

    def schedule(self, turn: Turn, group: ConsumerGroup, member_id: str, *, stepped: bool) -> None:
        """Each time a member is asked to give partitions back, it has its whole rebalance time-out to do so."""
        classic = group.members[member_id].classic
        session_ms = classic.session_timeout_ms if classic else self._config.group_consumer_session_timeout_ms
        self._timers.set(("consumer-session", group.group_id, member_id), turn.now_ms + session_ms)
        revoke: TimerKey = ("consumer-revoke", group.group_id, member_id)
        if group.current(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(revoke)
        elif stepped:
            self._timers.set(revoke, turn.now_ms + group.members[member_id].rebalance_timeout_ms)

    def recovered(self, turn: Turn, group: ConsumerGroup) -> None:
        """After a restart every member has a session's time to be heard of."""
        for member_id in group.members:
            self.schedule(turn, group, member_id, stepped=True)


class Draft:
    """A decision in the making: every record is applied to a copy of the group, so that the next one sees it."""

    def __init__(self, turn: Turn, group: ConsumerGroup) -> None:
        self.turn = turn
        self.group = group

    def emit(self, record: ConsumerRecord) -> None:
        self.turn.records.append(record)
        self.group.apply(record)

    def bump(self, hashed: int) -> None:
        self.emit(ConsumerGroupEpoch(self.group.group_id, self.group.epoch + 1, hashed))


def tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """What removes an empty group from the journal."""
    return [TargetEpoch(group.group_id, None), ConsumerGroupEpoch(group.group_id, None)]
