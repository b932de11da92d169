"""Server-side assignors of the new group protocol: who gets which partitions.

`range` gives each member a contiguous range of every topic, so that topics with equal partition counts line up.
`uniform` balances all partitions over all members and moves as few as it can. Both are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from atonce.coordinator.groups.consumer.records import Assignment, assignment


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member as an assignor sees it."""

    topics: frozenset[UUID]
    current: Assignment = ()
    instance_id: str | None = None


Partition = tuple[UUID, int]
Assignor = Callable[[Mapping[str, Candidate], Mapping[UUID, int]], dict[str, Assignment]]


def range_assignor(members: Mapping[str, Candidate], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    parts: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in members}
    # Static members first, by their lasting names: their ranges stay when they come back under another id.
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))
    for topic, count in counts.items():
        subscribers = [member_id for member_id in order if topic in members[member_id].topics]
        start = 0
        for place, member_id in enumerate(subscribers):
            size = count // len(subscribers) + (place < count % len(subscribers))
            parts[member_id][topic] = set(range(start, start + size))
            start += size
    return {member_id: assignment(topics) for member_id, topics in parts.items()}


def uniform_assignor(members: Mapping[str, Candidate], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    owned: dict[str, set[Partition]] = {member_id: set() for member_id in sorted(members)}
    subscribers = {topic: [m for m in owned if topic in members[m].topics] for topic in counts}
    free = {(topic, number) for topic, count in counts.items() if subscribers[topic] for number in range(count)}
    for member_id in owned:
        for topic, numbers in members[member_id].current:
            for number in numbers:
                if topic in members[member_id].topics and (topic, number) in free:
                    free.discard((topic, number))
                    owned[member_id].add((topic, number))
    # Those with the least choice first.
    for partition in sorted(free, key=lambda p: (len(subscribers[p[0]]), p)):
        owned[min(subscribers[partition[0]], key=lambda m: len(owned[m]))].add(partition)
    while _balance(owned, subscribers):
        pass
    return {member_id: _as_assignment(partitions) for member_id, partitions in owned.items()}


def _balance(owned: dict[str, set[Partition]], subscribers: Mapping[UUID, list[str]]) -> bool:
    """Move one partition from who has most to who has least, if that evens them out; whether it did.

    One at a time, always from the fullest: then nothing moves between two that are both above the rest.
    """
    for giver in sorted(owned, key=lambda m: -len(owned[m])):
        for partition in sorted(owned[giver], reverse=True):
            taker = min(subscribers[partition[0]], key=lambda m: len(owned[m]))
            if len(owned[giver]) - len(owned[taker]) > 1:
                owned[giver].discard(partition)
                owned[taker].add(partition)
                return True
    return False


def _as_assignment(partitions: set[Partition]) -> Assignment:
    topics: dict[UUID, set[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, set()).add(number)
    return assignment(topics)


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
