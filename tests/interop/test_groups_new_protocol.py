"""Groups under the new protocol (KIP-848) as the wire shows them, on both brokers with the same assertions (S2)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.coordinator_calls import PASSING, eventually, fresh
from tests.interop.group_calls import GroupCalls

OK = ErrorCode.none


class NewCalls(GroupCalls):
    def beat(
        self,
        group: str,
        member_id: str,
        epoch: int,
        *,
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: dict[uuid.UUID, list[int]] | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
    ) -> Any:
        partitions = None if owned is None else [{"topic_id": t, "partitions": p} for t, p in owned.items()]
        return eventually(
            lambda: self.call(
                68,
                1,
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rack_id=None,
                rebalance_timeout=rebalance_ms,
                subscribed_topic_names=topics,
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=partitions,
            ),
            lambda a: a.error_code not in PASSING,
        )

    def enter(self, group: str, topics: list[str], **options: Any) -> tuple[str, Any]:
        member_id = str(uuid.uuid4())
        answer = self.beat(group, member_id, 0, topics=topics, owned={}, rebalance_ms=30_000, **options)
        return member_id, answer

    def described(self, group: str) -> Any:
        return self.call(69, 1, group_ids=[group], include_authorized_operations=False).groups[0]


def assigned(answer: Any) -> dict[uuid.UUID, list[int]]:
    assert answer.assignment is not None, answer
    return {t.topic_id: sorted(t.partitions) for t in answer.assignment.topic_partitions}


class LiveMember:
    """A consumer that does as it is told: gives back at once, takes at once, and says so with its next heartbeat."""

    def __init__(self, calls: NewCalls, group: str, topics: list[str], **options: Any) -> None:
        self._calls = calls
        self._group = group
        self._options = options
        self.owned: dict[uuid.UUID, list[int]] = {}
        self.member_id, answer = calls.enter(group, topics, **options)
        self.epoch = 0
        self._take(answer)

    def beat(self) -> ErrorCode:
        instance_id = self._options.get("instance_id")
        answer = self._calls.beat(self._group, self.member_id, self.epoch, owned=self.owned, instance_id=instance_id)
        self._take(answer)
        error: ErrorCode = answer.error_code
        return error

    def _take(self, answer: Any) -> None:
        assert answer.error_code is OK, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = assigned(answer)

    @property
    def partitions(self) -> list[int]:
        return sorted(number for numbers in self.owned.values() for number in numbers)


def settled(calls: NewCalls, group: str, *members: LiveMember, partitions: int) -> None:
    """Heartbeat in turn until the group is stable. No partition is ever with two members (S2)."""

    def turn() -> tuple[str, int]:
        for member in members:
            member.beat()
            held = [(topic, n) for m in members for topic, numbers in m.owned.items() for n in numbers]
            assert len(held) == len(set(held)), held
        return calls.described(group).group_state, sum(len(member.partitions) for member in members)

    stable = ("Stable", partitions)
    assert eventually(turn, lambda found: found == stable) == stable


@pytest.fixture
def calls(kafka_servers: str) -> Iterator[NewCalls]:
    with NewCalls(kafka_servers) as client:
        yield client


@pytest.fixture
def group(calls: NewCalls) -> str:
    name = fresh("group")
    calls.coordinator(name, 0)
    return name


def test_first_member_gets_all_partitions(calls: NewCalls, group: str) -> None:
    topic = calls.topic(3)
    member = LiveMember(calls, group, [topic])
    settled(calls, group, member, partitions=3)
    assert member.owned == {calls.topic_id(topic): [0, 1, 2]}
    quiet = calls.beat(group, member.member_id, member.epoch)
    assert (quiet.error_code, quiet.member_epoch, quiet.assignment) == (OK, member.epoch, None)
    described = calls.described(group)
    assert (described.error_code, described.group_state, described.assignor_name) == (OK, "Stable", "uniform")
    assert described.members[0].subscribed_topic_names == (topic,)
    assert described.members[0].assignment == described.members[0].target_assignment
    assert calls.listed()[group].group_type.lower() == "consumer"


def test_partitions_are_shared_out_and_taken_back(calls: NewCalls, group: str) -> None:
    topic = calls.topic(4)
    first = LiveMember(calls, group, [topic])
    settled(calls, group, first, partitions=4)
    second = LiveMember(calls, group, [topic])
    assert second.partitions == []
    settled(calls, group, first, second, partitions=4)
    assert [len(first.partitions), len(second.partitions)] == [2, 2]
    left = calls.beat(group, first.member_id, -1)
    assert (left.error_code, left.member_epoch) == (OK, -1)
    settled(calls, group, second, partitions=4)
    assert second.partitions == [0, 1, 2, 3]
    assert calls.beat(group, first.member_id, first.epoch).error_code is ErrorCode.unknown_member_id


def test_partition_is_not_handed_over_before_it_was_given_back(calls: NewCalls, group: str) -> None:
    topic = calls.topic(2)
    topic_id = calls.topic_id(topic)
    first = LiveMember(calls, group, [topic])
    settled(calls, group, first, partitions=2)
    second = LiveMember(calls, group, [topic])
    everything = {topic_id: [0, 1]}

    def keep_everything() -> Any:
        second.beat()
        answer = calls.beat(group, first.member_id, first.epoch, owned=everything)
        if answer.assignment is None:
            first.epoch = answer.member_epoch
        return answer

    asked = eventually(keep_everything, lambda answer: answer.assignment is not None)
    assert asked.member_epoch == first.epoch, "it stays in its epoch until it has given back"
    assert len(assigned(asked)[topic_id]) == 1
    for _ in range(5):
        stubborn = calls.beat(group, first.member_id, first.epoch, owned=everything)
        second.beat()
        assert (stubborn.error_code, stubborn.member_epoch) == (OK, first.epoch)
        assert second.partitions == []
    first.owned = assigned(asked)
    settled(calls, group, first, second, partitions=2)
    assert sorted(first.partitions + second.partitions) == [0, 1]


def test_wrong_epochs_are_fenced_and_a_lost_answer_is_not(calls: NewCalls, group: str) -> None:
    topic = calls.topic(2)
    member_id, joined = calls.enter(group, [topic])
    again = calls.beat(group, member_id, 0, topics=[topic], owned={}, rebalance_ms=30_000)
    assert (again.error_code, again.member_epoch) == (OK, joined.member_epoch)
    ahead = calls.beat(group, member_id, joined.member_epoch + 5)
    assert ahead.error_code is ErrorCode.fenced_member_epoch
    assert calls.beat(group, "nobody", 3).error_code is ErrorCode.unknown_member_id
    assert calls.beat(fresh("group"), "nobody", 3).error_code is ErrorCode.group_id_not_found


def test_commits_are_checked_against_the_member_epoch(calls: NewCalls, group: str) -> None:
    topic = calls.topic(1)
    member_id, joined = calls.enter(group, [topic])
    epoch = joined.member_epoch
    assert calls.commit_offset(group, topic, 7, generation=epoch, member_id=member_id) is OK
    stale = calls.commit_offset(group, topic, 8, generation=epoch + 1, member_id=member_id)
    assert stale is ErrorCode.stale_member_epoch
    assert calls.commit_offset(group, topic, 8, generation=epoch, member_id="x") is ErrorCode.unknown_member_id
    assert calls.commit_offset(group, topic, 8) is ErrorCode.unknown_member_id
    assert calls.fetch_offset(group, topic).offset == 7


def test_static_member_comes_back_to_its_partitions(calls: NewCalls, group: str) -> None:
    topic = calls.topic(2)
    first = LiveMember(calls, group, [topic], instance_id="one")
    settled(calls, group, first, partitions=2)
    _, refused = calls.enter(group, [topic], instance_id="one")
    assert refused.error_code is ErrorCode.unreleased_instance_id
    away = calls.beat(group, first.member_id, -2, instance_id="one")
    assert (away.error_code, away.member_epoch) == (OK, -2)
    back = LiveMember(calls, group, [topic], instance_id="one")
    assert (back.epoch, back.owned) == (first.epoch, first.owned), "nothing was assigned anew"
    fenced = calls.beat(group, first.member_id, first.epoch, instance_id="one")
    assert fenced.error_code is ErrorCode.fenced_instance_id
    assert back.beat() is OK


def test_range_assignor_gives_contiguous_ranges(calls: NewCalls, group: str) -> None:
    topic = calls.topic(4)
    first = LiveMember(calls, group, [topic], assignor="range")
    second = LiveMember(calls, group, [topic], assignor="range")
    settled(calls, group, first, second, partitions=4)
    assert sorted([first.partitions, second.partitions]) == [[0, 1], [2, 3]]
    assert calls.described(group).assignor_name == "range"
    assert calls.enter(group, [topic], assignor="mine")[1].error_code is ErrorCode.unsupported_assignor


def test_partitions_and_topics_that_appear_later_are_assigned(calls: NewCalls, group: str) -> None:
    topic, other = calls.topic(1), fresh("later")
    member = LiveMember(calls, group, [topic, other])
    settled(calls, group, member, partitions=1)
    assert member.partitions == [0]
    answer = calls.call(
        37, 3, topics=[{"name": topic, "count": 3, "assignments": None}], timeout=10_000, validate_only=False
    )
    assert answer.results[0].error_code is OK
    grown = eventually(lambda: (member.beat(), member.partitions)[1], lambda p: p == [0, 1, 2])
    assert grown == [0, 1, 2]


@pytest.mark.parametrize(
    "kafka_servers",
    # Apache Kafka looks patterns up in the background, every ten seconds.
    ["embedded", pytest.param("apache_kafka", marks=pytest.mark.soak)],
    indirect=True,
)
def test_pattern_subscription_finds_its_topics(calls: NewCalls, group: str) -> None:
    topic = calls.topic(2)
    member_id = str(uuid.uuid4())
    pattern = topic[:-1] + "."
    joined = calls.beat(group, member_id, 0, topics=[], regex=pattern, owned={}, rebalance_ms=30_000)
    assert joined.error_code is OK
    got = joined
    if not assigned(joined):
        got = eventually(
            lambda: calls.beat(group, member_id, calls.described(group).members[0].member_epoch, owned={}),
            lambda a: a.assignment is not None and bool(assigned(a)),
        )
    assert assigned(got) == {calls.topic_id(topic): [0, 1]}
    bad = calls.beat(group, member_id, 0, topics=[], regex="(", owned={}, rebalance_ms=30_000)
    assert bad.error_code in (ErrorCode.invalid_regular_expression, ErrorCode.fenced_member_epoch)


def test_first_heartbeat_must_be_complete(calls: NewCalls, group: str) -> None:
    topic, member_id = calls.topic(1), str(uuid.uuid4())
    bad = ErrorCode.invalid_request
    assert calls.beat(group, member_id, 0, topics=[topic], owned={}).error_code is bad
    assert calls.beat(group, member_id, 0, topics=[topic], rebalance_ms=1000).error_code is bad
    assert calls.beat(group, member_id, 0, owned={}, rebalance_ms=1000).error_code is bad
    assert calls.beat(group, "", 0, topics=[topic], owned={}, rebalance_ms=1000).error_code is bad
    assert calls.beat("", member_id, 0, topics=[topic], owned={}, rebalance_ms=1000).error_code is bad
    assert calls.beat(group, member_id, -3).error_code is bad


def test_empty_group_changes_protocol_and_keeps_its_offsets(calls: NewCalls, group: str) -> None:
    topic = calls.topic(1)
    member = calls.stable_alone(group)
    assert calls.commit_offset(group, topic, 5, generation=member.generation, member_id=member.member_id) is OK
    assert calls.leave(group, member.member_id) is OK
    member_id, joined = calls.enter(group, [topic])
    assert joined.error_code is OK
    assert calls.fetch_offset(group, topic).offset == 5
    assert calls.beat(group, member_id, -1).error_code is OK
    again = calls.stable_alone(group)
    assert calls.fetch_offset(group, topic).offset == 5
    assert calls.heartbeat(group, again) is OK


def test_only_an_empty_group_is_deleted(calls: NewCalls, group: str) -> None:
    topic = calls.topic(1)
    member_id, joined = calls.enter(group, [topic])
    assert calls.commit_offset(group, topic, 5, generation=joined.member_epoch, member_id=member_id) is OK
    assert calls.delete(group) == [ErrorCode.non_empty_group]
    assert calls.beat(group, member_id, -1).error_code is OK
    assert calls.delete(group) == [OK]
    assert calls.described(group).error_code is ErrorCode.group_id_not_found
    assert calls.fetch_offset(group, topic).offset == -1
