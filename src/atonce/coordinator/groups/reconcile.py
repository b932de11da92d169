"""How a member gets from the partitions it has to those it should have: revoke first, then take what is free."""

from __future__ import annotations

from uuid import UUID

from atonce.coordinator.groups.consumer.records import Assignment, Current, assignment
from atonce.coordinator.groups.states import MemberState

Partitions = set[tuple[UUID, int]]


def reconcile(
    current: Current, target: Assignment, target_epoch: int, taken: Partitions, owned: Assignment | None
) -> Current:
    """The member's next step.

    `taken` are the partitions others still hold; `owned` what the member says it holds, None if it did not say.
    """
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or flat(owned) & flat(current.revoking):
            return current  # it has not given back what was asked of it
        return _step(current, min(current.epoch + 1, target_epoch), target, target_epoch, taken, owned)
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    return _step(current, current.epoch, target, target_epoch, taken, owned)


def _step(
    current: Current, epoch: int, target: Assignment, target_epoch: int, taken: Partitions, owned: Assignment | None
) -> Current:
    has, wanted = flat(current.assigned), flat(target)
    kept, revoking, missing = has & wanted, has - wanted, wanted - has
    available = missing - taken
    still_owned = owned is None or flat(owned) & revoking
    if revoking and still_owned:
        return _current(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    state = MemberState.UNRELEASED_PARTITIONS if missing - available else MemberState.STABLE
    return _current(current, target_epoch, state, kept | available, set())


def _current(before: Current, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions) -> Current:
    previous = before.epoch if epoch != before.epoch else before.previous_epoch
    return Current(
        epoch=epoch, previous_epoch=previous, state=state, assigned=grouped(assigned), revoking=grouped(revoking)
    )


def flat(partitions: Assignment) -> Partitions:
    return {(topic, number) for topic, numbers in partitions for number in numbers}


def grouped(partitions: Partitions) -> Assignment:
    topics: dict[UUID, set[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, set()).add(number)
    return assignment(topics)
