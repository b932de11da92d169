"""The new group protocol with virtual time: sessions, slow members, static members (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import StorageFailed
from atonce.coordinator.groups.consumer.requests import HeartbeatAnswer
from atonce.coordinator.groups.groups import GroupConfig, HeartbeatRequest
from atonce.coordinator.groups.reconcile import flat, grouped
from tests.simulation.coordinator.desk import Desk

OK = ErrorCode.none
SESSION_MS = 45_000
REBALANCE_MS = 20_000


@pytest.fixture
def desk() -> Desk:
    return Desk(group_config=GroupConfig(group_consumer_session_timeout_ms=SESSION_MS), topics={"a": 2})


class Member:
    def __init__(self, desk: Desk, name: str, **options: Any) -> None:
        self.desk = desk
        self.name = name
        self.epoch = 0
        self.owned: set[Any] = set()
        self.options = options

    def beat(self, *, keep: bool = False) -> HeartbeatAnswer:
        """One heartbeat; it does as it is told unless it should `keep` what it has."""
        joining = self.epoch == 0
        request = HeartbeatRequest(
            group_id="g",
            member_id=self.name,
            epoch=self.epoch,
            client_id="c",
            client_host="/",
            rebalance_timeout_ms=REBALANCE_MS if joining else -1,
            topics=("a",) if joining else None,
            owned=grouped(self.owned),
            **self.options,
        )
        answer = self.desk.group(self.desk.groups.consumer_heartbeat(self.desk.now_ms, request))
        if answer.error is OK:
            self.epoch = answer.epoch
            if answer.assignment is not None and not keep:
                self.owned = flat(answer.assignment)
        return answer

    def say_goodbye(self, epoch: int) -> HeartbeatAnswer:
        request = HeartbeatRequest(
            group_id="g", member_id=self.name, epoch=epoch, client_id="c", client_host="/", **self.options
        )
        return self.desk.group(self.desk.groups.consumer_heartbeat(self.desk.now_ms, request))


def test_member_that_falls_silent_is_removed_and_its_partitions_go_on(desk: Desk) -> None:
    """F18."""
    silent, alive = Member(desk, "silent"), Member(desk, "alive")
    silent.beat()
    desk.advance(10_000)
    alive.beat()
    assert alive.owned == set()
    desk.advance(SESSION_MS - 10_000 - 1)
    alive.beat()
    assert alive.owned == set()
    desk.advance(1)
    alive.beat()
    assert len(alive.owned) == 2
    assert silent.beat().error is ErrorCode.unknown_member_id


def test_member_that_fell_silent_while_the_disk_was_full_is_removed_later(desk: Desk) -> None:
    """F12: the decision could not be journaled, so nothing has happened; it is made again."""
    silent, alive = Member(desk, "silent"), Member(desk, "alive")
    silent.beat()
    alive.beat()
    desk.group_journal.full = True
    with pytest.raises(StorageFailed):
        desk.advance(SESSION_MS)
    group = desk.groups.describe_consumer_group("g")
    assert group is not None and set(group.members) == {"silent", "alive"}
    desk.group_journal.full = False
    desk.advance(2_000)
    assert not group.members, "both fell silent"


def test_member_that_does_not_give_back_in_time_is_removed(desk: Desk) -> None:
    stubborn, waiting = Member(desk, "stubborn"), Member(desk, "waiting")
    stubborn.beat()
    waiting.beat()
    stubborn.beat(keep=True)
    desk.advance(REBALANCE_MS - 1)
    assert stubborn.beat(keep=True).error is OK
    waiting.beat()
    assert waiting.owned == set()
    desk.advance(1)
    assert stubborn.beat(keep=True).error is ErrorCode.unknown_member_id
    waiting.beat()
    assert len(waiting.owned) == 2


def test_every_revocation_has_its_own_time(desk: Desk) -> None:
    """A member that gave back in time and is asked again is not late."""
    desk.topics.counts["a"] = 4
    first = Member(desk, "first")
    first.beat()
    second = Member(desk, "second")
    second.beat()
    first.beat()
    desk.advance(REBALANCE_MS - 1)
    third = Member(desk, "third")
    third.beat()
    first.beat()  # says that it gave two back, and is asked for another one
    desk.advance(REBALANCE_MS - 1)
    second.beat()
    third.beat()
    assert first.beat().error is OK


def test_static_member_that_is_away_too_long_is_removed(desk: Desk) -> None:
    static, other = Member(desk, "m1", instance_id="one"), Member(desk, "m2")
    static.beat()
    assert static.say_goodbye(-2).epoch == -2
    other.beat()
    assert other.owned == set(), "its partitions wait for it"
    desk.advance(SESSION_MS)
    other.epoch = 0
    other.beat()
    assert len(other.owned) == 2


def test_lost_answer_is_given_again(desk: Desk) -> None:
    member = Member(desk, "m")
    first = member.beat()
    member.epoch, member.owned = 0, set()
    assert member.beat() == first


def test_heartbeat_that_changes_nothing_journals_nothing(desk: Desk) -> None:
    member = Member(desk, "m")
    member.beat()
    journaled = len(desk.group_journal.batches)
    assert member.beat().assignment is None
    assert len(desk.group_journal.batches) == journaled


def test_refused_heartbeat_journals_nothing(desk: Desk) -> None:
    member = Member(desk, "m", assignor="mine")
    assert member.beat().error is ErrorCode.unsupported_assignor
    assert desk.group_journal.batches == []
    assert desk.groups.list_groups() == []
