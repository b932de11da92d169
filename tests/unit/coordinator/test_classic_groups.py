"""Classic groups with virtual time: rebalances, time-outs, static members, restarts (S2, F18)."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import Deferred, StorageFailed, TopicPartition
from atonce.coordinator.groups.classic.rebalance import JoinAnswer
from atonce.coordinator.groups.groups import GroupConfig, JoinRequest, OffsetToCommit, SyncRequest
from tests.simulation.coordinator.desk import Crash, Desk

OK = ErrorCode.none
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
IN = TopicPartition("in", 0)


@pytest.fixture
def desk() -> Desk:
    return Desk(group_config=GroupConfig(group_initial_rebalance_delay_ms=DELAY_MS))


class Member:
    """A member that remembers what it waits for."""

    def __init__(self, desk: Desk, instance_id: str | None = None, protocols: tuple[str, ...] = ("range",)) -> None:
        self.desk = desk
        self.instance_id = instance_id
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.token: int | None = None

    def join(self, *, known_id: bool = True, **options: Any) -> Any:
        request = JoinRequest(
            group_id="g",
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=tuple((name, b"meta-" + name.encode()) for name in self.protocols),
            requires_known_id=known_id and self.instance_id is None,
            knows_skip_assignment=True,
            **options,
        )
        answer = self.desk.group(self.desk.groups.join_group(self.desk.now_ms, request))
        if isinstance(answer, JoinAnswer) and answer.error is ErrorCode.member_id_required:
            self.member_id = answer.member_id
            return self.join(known_id=known_id)
        return self._took(answer)

    def _took(self, answer: Any) -> Any:
        if isinstance(answer, Deferred):
            self.token = answer.token
            return None
        if answer.error is OK:
            self.member_id, self.generation = answer.member_id, answer.generation
        return answer

    @property
    def joined(self) -> Any:
        """The answer to the join that was deferred, if it has come."""
        answer = self.desk.answers.get(self.token or -1)
        return None if answer is None else self._took(answer)

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        request = SyncRequest(
            group_id="g",
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            assignments=tuple((assignments or {}).items()),
        )
        answer = self.desk.group(self.desk.groups.sync_group(self.desk.now_ms, request))
        if isinstance(answer, Deferred):
            self.token = answer.token
            return None
        return answer

    def beat(self) -> ErrorCode:
        return self.desk.group(
            self.desk.groups.heartbeat(self.desk.now_ms, "g", self.member_id, self.instance_id, self.generation)
        )

    def leave(self) -> ErrorCode:
        members = [(self.member_id, self.instance_id)]
        return self.desk.group(self.desk.groups.leave_group(self.desk.now_ms, "g", members))[0]

    def commit(self, offset: int) -> ErrorCode:
        decision = self.desk.groups.commit_offsets(
            self.desk.now_ms, "g", self.member_id, self.instance_id, self.generation, [OffsetToCommit(IN, offset)]
        )
        return self.desk.group(decision)[IN]


def stable(desk: Desk, count: int = 2, *, static: bool = False) -> list[Member]:
    members = [Member(desk, f"i{n}" if static else None) for n in range(count)]
    for member in members:
        assert member.join() is None
    desk.advance(2 * DELAY_MS)
    for member in members:
        assert member.joined is not None
    leader = next(m for m in members if m.joined.members)
    for member in members:
        if member is not leader:
            assert member.sync() is None
    plan = {m.member_id: f"part{n}".encode() for n, m in enumerate(members)}
    assert leader.sync(plan).assignment == plan[leader.member_id]
    return members


def state(desk: Desk) -> str:
    group = desk.groups.describe_group("g")
    return "none" if group is None else group.state.value


def test_initial_delay_gathers_members_into_one_generation(desk: Desk) -> None:
    first, second = Member(desk), Member(desk)
    first.join()
    desk.advance(DELAY_MS - 1)
    second.join()
    desk.advance(1)
    assert first.joined is None, "a member came during the delay: it is extended once more"
    desk.advance(DELAY_MS)
    assert first.joined.generation == second.joined.generation == 1
    assert {m[0] for m in first.joined.members} == {first.member_id, second.member_id}


def test_followers_get_their_part_when_the_leader_has_brought_it(desk: Desk) -> None:
    members = stable(desk, 3)
    assert state(desk) == "Stable"
    for number, member in enumerate(members):
        assert member.sync().assignment == f"part{number}".encode()
        assert member.beat() is OK


def test_member_that_falls_silent_makes_the_others_rebalance(desk: Desk) -> None:
    """F18."""
    alive, silent = stable(desk)
    desk.advance(SESSION_MS - 1)
    assert alive.beat() is OK
    desk.advance(1)
    assert alive.beat() is ErrorCode.rebalance_in_progress
    assert silent.beat() is ErrorCode.unknown_member_id
    rejoined = alive.join()
    assert rejoined.generation == 2
    assert len(rejoined.members) == 1


def test_member_that_does_not_rejoin_in_time_is_left_behind(desk: Desk) -> None:
    first, second = stable(desk)
    third = Member(desk)
    third.join()
    assert first.beat() is ErrorCode.rebalance_in_progress
    assert first.join() is None
    for _ in range(REBALANCE_MS // 5_000 + 1):
        second.beat()
        desk.advance(5_000)
    assert first.joined.generation == 2
    assert third.joined.generation == 2
    assert second.beat() is ErrorCode.unknown_member_id


def test_member_that_never_fetches_its_assignment_is_removed(desk: Desk) -> None:
    first, second = Member(desk), Member(desk)
    first.join()
    second.join()
    desk.advance(2 * DELAY_MS)
    assert first.joined and second.joined
    leader, other = (first, second) if first.joined.members else (second, first)
    assert leader.sync({leader.member_id: b"all"}).error is OK
    for _ in range(REBALANCE_MS // 5_000 + 1):
        leader.beat()
        other.beat()
        desk.advance(5_000)
    assert leader.beat() is ErrorCode.rebalance_in_progress
    assert other.beat() is ErrorCode.unknown_member_id


def test_member_id_that_is_never_used_does_not_block_the_group(desk: Desk) -> None:
    (alone,) = stable(desk, 1)
    ghost = JoinRequest(
        group_id="g",
        member_id="",
        instance_id=None,
        client_id="ghost",
        client_host="/",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=(("range", b""),),
        requires_known_id=True,
    )
    assert desk.group(desk.groups.join_group(desk.now_ms, ghost)).error is ErrorCode.member_id_required
    assert alone.beat() is OK
    assert alone.join() is None, "the rebalance waits for the id that was given out"
    desk.advance(SESSION_MS)
    assert alone.joined.generation == 2


def test_static_member_keeps_its_place_over_its_own_restart(desk: Desk) -> None:
    first, second = stable(desk, static=True)
    back = Member(desk, "i1")
    answer = back.join()
    assert (answer.error, answer.generation) == (OK, 1)
    assert back.sync().assignment == b"part1"
    assert first.beat() is OK
    assert second.beat() is ErrorCode.fenced_instance_id


def test_static_member_that_is_away_does_not_disturb_until_its_session_is_over(desk: Desk) -> None:
    first, _ = stable(desk, static=True)
    desk.advance(SESSION_MS - 1)
    assert first.beat() is OK
    desk.advance(1)
    assert first.beat() is ErrorCode.rebalance_in_progress


def test_restart_of_the_broker_disturbs_no_member(desk: Desk) -> None:
    """The last generation is in the journal, and so is everyone's part."""
    members = stable(desk)
    desk.restart()
    for number, member in enumerate(members):
        assert member.beat() is OK
        assert member.sync().assignment == f"part{number}".encode()
        assert member.commit(7) is OK
    desk.advance(SESSION_MS)
    assert members[0].beat() is ErrorCode.unknown_member_id, "and sessions run again"


def test_restart_in_the_middle_of_a_rebalance_makes_everyone_join_again(desk: Desk) -> None:
    first, second = stable(desk)
    Member(desk).join()
    assert first.join() is None
    desk.restart()
    assert first.beat() is OK, "the generation that was last complete is in force"
    assert second.commit(3) is OK


def test_empty_group_keeps_generation_and_offsets_over_a_restart(desk: Desk) -> None:
    (member,) = stable(desk, 1)
    assert member.commit(5) is OK
    assert member.leave() is OK
    assert state(desk) == "Empty"
    desk.restart()
    assert state(desk) == "Empty"
    again = Member(desk)
    again.join()
    desk.advance(2 * DELAY_MS)
    assert again.joined.generation == 3, "generations never start over while the group is remembered"


def test_assignment_that_cannot_be_journaled_is_not_in_force(desk: Desk) -> None:
    """F12."""
    member = Member(desk)
    member.join()
    desk.advance(2 * DELAY_MS)
    assert member.joined
    desk.group_journal.full = True
    with pytest.raises(StorageFailed):
        member.sync({member.member_id: b"mine"})
    assert state(desk) == "CompletingRebalance"
    desk.group_journal.full = False
    assert member.sync({member.member_id: b"mine"}).assignment == b"mine"


def test_commit_during_a_rebalance_is_accepted_until_the_generation_changes(desk: Desk) -> None:
    first, second = stable(desk)
    Member(desk).join()
    assert first.commit(1) is OK, "PreparingRebalance: the old generation may still say how far it got"
    assert first.join() is None
    assert second.join().generation == 2
    assert first.joined is not None
    assert first.commit(2) is ErrorCode.rebalance_in_progress
    second.generation = 1
    assert second.commit(2) is ErrorCode.illegal_generation


def test_protocol_is_one_that_all_members_have(desk: Desk) -> None:
    first = Member(desk, protocols=("sticky", "range"))
    second = Member(desk, protocols=("range", "roundrobin"))
    first.join()
    second.join()
    desk.advance(3 * DELAY_MS)
    assert first.joined.protocol == second.joined.protocol == "range"


def test_group_without_members_can_be_deleted_and_one_with_members_cannot(desk: Desk) -> None:
    (member,) = stable(desk, 1)
    assert desk.group(desk.groups.delete_groups(desk.now_ms, ["g", "no"])) == {
        "g": ErrorCode.non_empty_group,
        "no": ErrorCode.group_id_not_found,
    }
    member.leave()
    assert desk.group(desk.groups.delete_groups(desk.now_ms, ["g"])) == {"g": OK}
    desk.restart()
    assert state(desk) == "none"


def test_crash_at_any_journal_operation_leaves_a_group_that_goes_on() -> None:
    def scenario(desk: Desk) -> None:
        first, second = stable(desk)
        assert first.commit(1) is OK
        assert second.leave() is OK
        first.join()
        first.sync({first.member_id: b"everything"})
        assert first.commit(2) is OK

    whole = Desk(group_config=GroupConfig(group_initial_rebalance_delay_ms=DELAY_MS))
    scenario(whole)
    assert whole.steps > 8
    for crash_at in range(1, whole.steps + 1):
        crashed = Desk(group_config=GroupConfig(group_initial_rebalance_delay_ms=DELAY_MS))
        crashed.crash_at = crash_at
        with pytest.raises(Crash):
            scenario(crashed)
        crashed.restart(lost=(9, 9))
        late = Member(crashed)
        late.join()
        for _ in range(REBALANCE_MS // 1_000 + 1):
            if late.joined is None:
                crashed.advance(1_000)
        assert late.joined is not None, f"nobody can join after a crash at step {crash_at}"
        assert late.sync({late.member_id: b"x"}).assignment == b"x"
