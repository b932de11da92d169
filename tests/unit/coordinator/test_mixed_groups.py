"""Groups that change over to the new protocol, and back, while their members run (KIP-848). Virtual time, restarts."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Deferred, StorageFailed, TopicPartition
from atonce.coordinator.groups.classic.group import ClassicGroup
from atonce.coordinator.groups.classic.requests import JoinRequest, SyncRequest
from atonce.coordinator.groups.consumer.group import ConsumerGroup
from atonce.coordinator.groups.consumer.protocol import read_assignment
from atonce.coordinator.groups.groups import GroupConfig, OffsetToCommit
from atonce.coordinator.groups.states import ClassicState, ConsumerState
from atonce.coordinator.wire import Writer
from tests.simulation.coordinator.desk import Desk
from tests.unit.coordinator.test_consumer_groups import Member

OK, AGAIN = ErrorCode.none, ErrorCode.rebalance_in_progress
SESSION_MS, REBALANCE_MS = 10_000, 20_000
Place = tuple[str, int]


def subscription(owned: set[Place], *, cooperative: bool) -> bytes:
    """As a Java consumer writes it: version 1 has what it owns."""
    writer = Writer(1).array(["a"], Writer.string).blob(None)
    held = [(topic, [n for t, n in sorted(owned) if t == topic]) for topic in sorted({t for t, _ in owned})]
    writer.array(held if cooperative else [], lambda w, item: w.string(item[0]).array(item[1], Writer.i32))
    return writer.done()


class Classic:
    """A classic consumer. As a leader it gives everything to everyone in turn."""

    def __init__(self, desk: Desk, name: str, *, cooperative: bool = False, instance_id: str | None = None) -> None:
        self.desk, self.name, self.cooperative, self.instance_id = desk, name, cooperative, instance_id
        self.member_id, self.generation = "", -1
        self.owned: set[Place] = set()

    def ask_to_join(self) -> Any:
        request = JoinRequest(
            group_id="g",
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", subscription(self.owned, cooperative=self.cooperative)),),
            requires_known_id=False,
        )
        return self.desk.groups.join_group(self.desk.now_ms, request)

    def join(self) -> ErrorCode:
        """Join and sync; an eager member lets go of everything first."""
        if not self.cooperative:
            self.owned = set()
        answer = self.desk.group(self.ask_to_join())
        if isinstance(answer, Deferred):
            self.desk.advance(0)
            answer = self.desk.answers.pop(answer.token)
        if answer.error is OK:
            self.member_id, self.generation = answer.member_id, answer.generation
            return self.sync(answer)
        return answer.error

    def sync(self, joined: Any) -> ErrorCode:
        everyone = [member_id for member_id, _, _ in joined.members]
        shares = {m: [n for n in range(4) if n % len(everyone) == i] for i, m in enumerate(everyone)}
        told = {
            m: Writer(1).array([("a", ns)], lambda w, item: w.string(item[0]).array(item[1], Writer.i32)).blob(None)
            for m, ns in shares.items()
        }
        request = SyncRequest(
            group_id="g",
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            protocol_type="consumer",
            protocol="range",
            assignments=tuple((m, writer.done()) for m, writer in told.items()),
        )
        answer = self.desk.group(self.desk.groups.sync_group(self.desk.now_ms, request))
        if answer.error is OK:
            self.owned = {(topic, n) for topic, numbers in read_assignment(answer.assignment) for n in numbers}
        return answer.error

    def beat(self) -> ErrorCode:
        """A heartbeat, and what a consumer does about its answer."""
        error = self.desk.group(
            self.desk.groups.heartbeat(self.desk.now_ms, "g", self.member_id, self.instance_id, self.generation)
        )
        return self.join() if error is AGAIN else error

    def leave(self) -> None:
        (error,) = self.desk.group(self.desk.groups.leave_group(self.desk.now_ms, "g", [(self.member_id, None)]))
        assert error is OK


@pytest.fixture
def desk() -> Desk:
    return Desk(group_config=GroupConfig(group_initial_rebalance_delay_ms=0), topics={"a": 4})


def alone(desk: Desk, **options: Any) -> Classic:
    """A classic group of one, which has all partitions."""
    member = Classic(desk, "old", **options)
    assert member.join() is OK
    assert len(member.owned) == 4
    return member


def settle(desk: Desk, *members: Any) -> None:
    for _ in range(8):
        for member in members:
            answer = member.beat()
            assert getattr(answer, "error", answer) in (OK, AGAIN), answer


def names(member: Any) -> set[int]:
    return {number for _, number in member.owned}


def group_of(desk: Desk) -> Any:
    return desk.groups.describe_consumer_group("g") or desk.groups.describe_group("g")


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_new_member_turns_the_group_over_and_shares_with_the_classic_one(
    desk: Desk, cooperative: bool, restart: bool
) -> None:
    old = alone(desk, cooperative=cooperative)
    new = Member(desk, "new")
    assert new.beat().error is OK
    if restart:
        desk.restart()
    settle(desk, old, new)
    assert isinstance(group_of(desk), ConsumerGroup) and group_of(desk).state is ConsumerState.STABLE
    assert names(old) | names(new) == {0, 1, 2, 3} and not names(old) & names(new)
    assert len(names(old)) == len(names(new)) == 2


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("gone", ["leaves", "falls silent"])
def test_the_group_turns_back_when_the_last_new_member_has_gone(desk: Desk, gone: str, restart: bool) -> None:
    old, new = alone(desk), Member(desk, "new")
    new.beat()
    settle(desk, old, new)
    if gone == "leaves":
        assert new.say_goodbye(-1).error is OK
    else:
        while isinstance(group_of(desk), ConsumerGroup):  # its session is longer than that of the classic one
            assert old.beat() is OK
            desk.advance(SESSION_MS - 1)
    if restart:
        desk.restart()
    desk.advance(0)
    group = group_of(desk)
    assert isinstance(group, ClassicGroup) and set(group.members) == {old.member_id}
    error = desk.group(desk.groups.heartbeat(desk.now_ms, "g", old.member_id, None, old.generation))
    assert error is AGAIN, "it is told to join again, and keeps its generation until then"
    assert old.join() is OK
    assert names(old) == {0, 1, 2, 3} and group_of(desk).state is ClassicState.STABLE


def test_no_partition_has_two_owners_at_any_moment(desk: Desk) -> None:
    """S2: an eager, a cooperative and two new members come one after another; owners are compared at every step."""
    old = alone(desk, cooperative=True)
    everyone: list[Any] = [old]
    for name in ("n1", "classic", "n2"):
        newcomer: Any = Classic(desk, name) if name == "classic" else Member(desk, name)
        if name == "classic":
            assert newcomer.join() is OK
        everyone.append(newcomer)
        for _ in range(10):
            for member in everyone:
                member.beat()
                held = [place for one in everyone for place in names(one)]
                assert len(held) == len(set(held)), f"two owners: {[names(one) for one in everyone]}"
        assert {number for one in everyone for number in names(one)} == {0, 1, 2, 3}


def test_classic_member_commits_with_its_generation_only(desk: Desk) -> None:
    old, new = alone(desk), Member(desk, "new")
    before = old.generation
    new.beat()
    settle(desk, old, new)
    place = TopicPartition("a", 0)

    def commit(generation: int) -> ErrorCode:
        offsets = [OffsetToCommit(place, 7)]
        decided = desk.groups.commit_offsets(desk.now_ms, "g", old.member_id, None, generation, offsets)
        return desk.group(decided)[place]

    assert commit(old.generation) is OK
    assert old.generation != before and commit(before) is ErrorCode.illegal_generation


def test_static_classic_member_is_replaced_by_its_new_self(desk: Desk) -> None:
    """A rolling bounce: the same instance id comes back and speaks the new protocol."""
    old, stays = alone(desk, instance_id="one"), Member(desk, "stays")
    stays.beat()
    settle(desk, old, stays)
    back = Member(desk, "back", instance_id="one")
    assert back.beat().error is OK
    settle(desk, back, stays)
    assert names(back) | names(stays) == {0, 1, 2, 3}
    assert desk.group(desk.groups.heartbeat(desk.now_ms, "g", old.member_id, "one", old.generation)) is (
        ErrorCode.fenced_instance_id
    )


def test_classic_member_that_does_not_join_again_is_removed(desk: Desk) -> None:
    old, new = alone(desk), Member(desk, "new")
    new.beat()
    waited = 0
    while waited < REBALANCE_MS:
        error = desk.group(desk.groups.heartbeat(desk.now_ms, "g", old.member_id, None, old.generation))
        assert error is AGAIN
        desk.advance(SESSION_MS // 2)
        waited += SESSION_MS // 2
        new.beat()
    new.beat()
    assert names(new) == {0, 1, 2, 3}


def test_change_that_the_journal_cannot_take_has_not_happened(desk: Desk) -> None:
    """F12."""
    old = alone(desk)
    desk.group_journal.full = True
    with pytest.raises(StorageFailed):
        Member(desk, "new").beat()
    desk.group_journal.full = False
    assert isinstance(group_of(desk), ClassicGroup) and old.beat() is OK
    new = Member(desk, "new")
    new.beat()
    settle(desk, old, new)
    desk.group_journal.full = True
    with pytest.raises(StorageFailed):
        new.say_goodbye(-1)
    desk.group_journal.full = False
    assert isinstance(group_of(desk), ConsumerGroup) and old.beat() is OK
    desk.advance(SESSION_MS)
    desk.advance(60_000)
    assert not group_of(desk).members, "whoever falls silent is removed, after a failed change too"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_policy_may_forbid_it(policy: str) -> None:
    config = GroupConfig(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
    desk = Desk(group_config=config, topics={"a": 4})
    old = alone(desk)
    answer = Member(desk, "new").beat()
    assert answer.error is ErrorCode.group_id_not_found and "is not a consumer group" in (answer.message or "")
    assert old.beat() is OK and isinstance(group_of(desk), ClassicGroup)


def test_group_of_another_kind_of_client_does_not_change(desk: Desk) -> None:
    """Connect workers, say: what they subscribe to, only they know."""
    old = alone(desk)
    group_of(desk).protocol_type = "connect"
    assert Member(desk, "new").beat().error is ErrorCode.group_id_not_found
    assert old.beat() is OK
