"""A group under the new protocol (KIP-848): all of its state is journaled, member by member."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Topics
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
from atonce.coordinator.groups.states import ConsumerState, MemberState

V = TypeVar("V")

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

JUST_JOINED = Current(epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=(), revoking=())


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    group_id: str
    epoch: int = 1  # the first change makes it 2, as in Kafka
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, Subscription] = field(default_factory=dict)
    currents: dict[str, Current] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)

    def copy(self) -> ConsumerGroup:
        """A draft: records are applied to it while a decision is made."""
        return ConsumerGroup(
            group_id=self.group_id,
            epoch=self.epoch,
            metadata_hash=self.metadata_hash,
            target_epoch=self.target_epoch,
            members=dict(self.members),
            currents=dict(self.currents),
            targets=dict(self.targets),
        )

    # -- look up ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        reconciled = all(
            current.state is MemberState.STABLE and current.epoch == self.target_epoch
            for current in map(self.current, self.members)
        )
        return ConsumerState.STABLE if reconciled else ConsumerState.RECONCILING

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id, JUST_JOINED)

    def static_member(self, instance_id: str) -> str | None:
        return next((m for m, s in self.members.items() if s.instance_id == instance_id), None)

    def owned_by_others(self, member_id: str) -> set[tuple[UUID, int]]:
        """Partitions that another member has, or has not given back yet."""
        return {
            (topic, number)
            for other, current in self.currents.items()
            if other != member_id
            for topic, numbers in (*current.assigned, *current.revoking)
            for number in numbers
        }

    def preferred_assignor(self, default: str) -> str:
        votes = Counter(s.assignor for s in self.members.values() if s.assignor)
        return votes.most_common(1)[0][0] if votes else default

    def commit_error(self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool) -> ErrorCode:
        """May this member, or this stranger, commit offsets now?"""
        if epoch < 0 and not self.members:
            return ErrorCode.none
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.none
        if member_id not in self.members:
            return ErrorCode.unknown_member_id
        if epoch != self.current(member_id).epoch:
            classic = transactional or self.members[member_id].classic is not None
            return ErrorCode.illegal_generation if classic else ErrorCode.stale_member_epoch
        return ErrorCode.none

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        if not member_id and epoch < 0:
            return ErrorCode.none
        if member_id is None or member_id not in self.members:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if epoch == self.current(member_id).epoch else ErrorCode.stale_member_epoch

    # -- topics -------------------------------------------------------------------------------------------------

    def subscribed(self, member_id: str, topics: Topics) -> frozenset[str]:
        """The topics a member wants, by name and by pattern, whether they exist or not."""
        subscription = self.members[member_id]
        names = set(subscription.topics)
        if subscription.regex:
            with contextlib.suppress(BadPattern):  # checked when the member sent it; a journal may hold another dialect
                found = compiled(subscription.regex).matching(topics.names())
                names.update(name for name in found if not name.startswith("__"))
        return frozenset(names)

    def subscribed_topics(self, topics: Topics) -> frozenset[str]:
        return frozenset().union(*(self.subscribed(member_id, topics) for member_id in self.members))

    # -- apply --------------------------------------------------------------------------------------------------

    def apply(self, record: ConsumerRecord) -> None:
        match record:
            case ConsumerGroupEpoch(_, epoch, metadata_hash) if epoch is not None:
                self.epoch, self.metadata_hash = epoch, metadata_hash
            case TargetEpoch(_, epoch):
                self.target_epoch = 0 if epoch is None else epoch
            case ConsumerMemberRecord(_, member_id, subscription):
                _put(self.members, member_id, subscription)
            case TargetAssignment(_, member_id, partitions):
                _put(self.targets, member_id, partitions)
            case CurrentAssignment(_, member_id, current):
                _put(self.currents, member_id, current)


def _put(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Changes whenever one of these topics appears, disappears or grows."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        digest.update(f"{name}\0{topics.topic_id(name)}\0{topics.partition_count(name)}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
