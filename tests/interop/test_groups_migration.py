"""Groups whose members change over to the new protocol, and back, while they run: both brokers, the same assertions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.groups.consumer.protocol import read_assignment, write_assignment
from atonce.coordinator.wire import Writer
from tests.interop.coordinator_calls import eventually, fresh
from tests.interop.group_calls import Member
from tests.interop.test_groups_new_protocol import LiveMember, NewCalls

OK, AGAIN = ErrorCode.none, ErrorCode.rebalance_in_progress


@pytest.fixture
def calls(kafka_servers: str) -> Iterator[NewCalls]:
    with NewCalls(kafka_servers) as client:
        yield client


class ClassicMember:
    """An eager classic consumer: told to join again, it lets go of everything first."""

    def __init__(self, calls: NewCalls, group: str, topic: str, partitions: int) -> None:
        self._calls, self._group, self._topic = calls, group, topic
        self._all = write_assignment(1, [(topic, range(partitions))])
        self.owned: list[int] = []
        self.me = Member("", -1)

    @property
    def subscription(self) -> bytes:
        nothing_owned: list[Any] = []
        return Writer(1).array([self._topic], Writer.string).blob(None).array(nothing_owned, lambda w, _: w).done()

    def join(self) -> None:
        self.owned = []
        joined = self._calls.join(self._group, self.me.member_id, metadata=self.subscription)
        if joined.error_code is ErrorCode.member_id_required:
            joined = self._calls.join(self._group, joined.member_id, metadata=self.subscription)
        assert joined.error_code in (OK, AGAIN), joined
        if joined.error_code is AGAIN:
            return
        self.me = Member(joined.member_id, joined.generation_id)
        leads = joined.leader == joined.member_id
        synced = self._calls.sync(self._group, self.me, {self.me.member_id: self._all} if leads else {})
        assert synced.error_code in (OK, AGAIN), synced
        if synced.error_code is OK:
            self.owned = sorted(n for _, numbers in read_assignment(synced.assignment) for n in numbers)

    def beat(self) -> None:
        answer = self._calls.heartbeat(self._group, self.me)
        assert answer in (OK, AGAIN), answer
        if answer is AGAIN:
            self.join()


def test_group_changes_over_and_back_with_its_members_running(calls: NewCalls) -> None:
    """S2: no partition is ever with two members. Offsets and generations are the group's own throughout."""
    group, topic = fresh("migrating"), calls.topic(4)
    calls.coordinator(group, 0)
    old = ClassicMember(calls, group, topic, 4)
    old.join()
    assert old.owned == [0, 1, 2, 3]
    assert calls.listed()[group].group_type.lower() == "classic"

    new = LiveMember(calls, group, [topic])
    assert calls.listed()[group].group_type.lower() == "consumer"

    def turn() -> tuple[int, int, str]:
        for member in (old, new):
            member.beat()
            assert not set(old.owned) & set(new.partitions), (old.owned, new.partitions)
        return len(old.owned), len(new.partitions), calls.described(group).group_state

    assert eventually(turn, lambda found: found == (2, 2, "Stable")) == (2, 2, "Stable")
    assert sorted([*old.owned, *new.partitions]) == [0, 1, 2, 3]
    kinds = {member.member_id: member.member_type for member in calls.described(group).members}
    assert kinds == {old.me.member_id: 0, new.member_id: 1}
    assert calls.heartbeat(group, Member(old.me.member_id, old.me.generation + 7)) is ErrorCode.illegal_generation
    assert calls.heartbeat(group, Member(new.member_id, new.epoch)) is ErrorCode.unknown_member_id

    assert calls.beat(group, new.member_id, -1, owned=None).error_code is OK
    assert calls.listed()[group].group_type.lower() == "classic"

    def alone() -> list[int]:
        old.beat()
        return old.owned

    assert eventually(alone, lambda found: len(found) == 4) == [0, 1, 2, 3]
    assert calls.described(group).error_code is ErrorCode.group_id_not_found
    assert calls.describe(group).group_state == "Stable"


def test_static_classic_consumer_that_replaces_the_last_new_one_turns_the_group_back(calls: NewCalls) -> None:
    """S2: an application is rolled back to its old client; the instance keeps its name and gets its partitions again."""
    group, topic = fresh("rolled-back"), calls.topic(4)
    calls.coordinator(group, 0)
    new = LiveMember(calls, group, [topic], instance_id="one")
    eventually(lambda: (new.beat(), new.partitions)[1], lambda found: len(found) == 4)
    assert calls.beat(group, new.member_id, -2, owned=None, instance_id="one").error_code is OK

    old = ClassicMember(calls, group, topic, 4)
    joined = calls.join(group, metadata=old.subscription, instance_id="one")
    assert joined.error_code is OK, joined
    assert calls.listed()[group].group_type.lower() == "classic"
    assert calls.described(group).error_code is ErrorCode.group_id_not_found

    def rejoined() -> Any:
        again = calls.join(group, joined.member_id, metadata=old.subscription, instance_id="one")
        member = Member(again.member_id, again.generation_id, "one")
        return calls.sync(group, member, {again.member_id: write_assignment(1, [(topic, range(4))])})

    synced = eventually(rejoined, lambda answer: answer.error_code is OK)
    assert [sorted(numbers) for _, numbers in read_assignment(synced.assignment)] == [[0, 1, 2, 3]]
    assert calls.describe(group).group_state == "Stable"
