"""Classic groups and offsets as the wire shows them, on the embedded broker and on Apache Kafka, with the same assertions.

S2, S3, S21, F18.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.coordinator_calls import eventually, fresh
from tests.interop.group_calls import GroupCalls, Member

OK = ErrorCode.none


@pytest.fixture
def calls(kafka_servers: str) -> Iterator[GroupCalls]:
    with GroupCalls(kafka_servers) as client:
        yield client


@pytest.fixture
def other(kafka_servers: str) -> Iterator[GroupCalls]:
    """A second member needs a connection of its own: a join waits."""
    with GroupCalls(kafka_servers) as client:
        yield client


@pytest.fixture
def group(calls: GroupCalls) -> str:
    name = fresh("group")
    calls.coordinator(name, 0)
    return name


def test_new_member_is_given_its_id_then_leads_the_group(calls: GroupCalls, group: str) -> None:
    first = calls.join(group)
    assert first.error_code is ErrorCode.member_id_required
    assert first.member_id.startswith("raw-")
    joined = calls.join(group, first.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (OK, 1, first.member_id)
    assert (joined.protocol_type, joined.protocol_name, joined.skip_assignment) == ("consumer", "range", False)
    assert [m.member_id for m in joined.members] == [first.member_id]


def test_member_id_that_nobody_gave_out_is_unknown(calls: GroupCalls, group: str) -> None:
    assert calls.join(group, "made-up").error_code is ErrorCode.unknown_member_id
    calls.stable_alone(group)
    assert calls.join(group, "made-up").error_code is ErrorCode.unknown_member_id
    stranger = Member("made-up", 1)
    assert calls.heartbeat(group, stranger) is ErrorCode.unknown_member_id
    assert calls.sync(group, stranger).error_code is ErrorCode.unknown_member_id
    assert calls.leave(group, "made-up") is ErrorCode.unknown_member_id


def test_second_member_makes_the_first_rejoin_and_both_get_their_part(
    calls: GroupCalls, other: GroupCalls, group: str
) -> None:
    first = calls.stable_alone(group)
    second_id = other.join(group).member_id
    waiting = other.send_join(group, second_id)
    rebalancing = eventually(lambda: calls.heartbeat(group, first), lambda e: e is not OK)
    assert rebalancing is ErrorCode.rebalance_in_progress
    assert calls.sync(group, first).error_code is ErrorCode.rebalance_in_progress
    again = calls.join(group, first.member_id)
    joined = other.receive(waiting)
    assert (again.error_code, again.generation_id, again.leader) == (OK, 2, first.member_id)
    assert {m.member_id for m in again.members} == {first.member_id, second_id}
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (OK, 2, first.member_id, ())
    follower = other.send_sync(group, Member(second_id, 2))
    leader = calls.sync(group, Member(first.member_id, 2), {first.member_id: b"A", second_id: b"B"})
    assert (leader.error_code, leader.assignment) == (OK, b"A")
    assert other.receive(follower).assignment == b"B"
    assert calls.heartbeat(group, Member(first.member_id, 2)) is OK
    assert calls.heartbeat(group, first) is ErrorCode.illegal_generation
    assert other.sync(group, Member(second_id, 2)).assignment == b"B", "an assignment can be asked for again"


def test_member_that_leaves_hands_over_at_once(calls: GroupCalls, other: GroupCalls, group: str) -> None:
    first = calls.stable_alone(group)
    second_id = other.join(group).member_id
    waiting = other.send_join(group, second_id)
    eventually(lambda: calls.heartbeat(group, first), lambda e: e is not OK)
    assert calls.leave(group, first.member_id) is OK
    joined = other.receive(waiting)
    assert (joined.error_code, joined.leader) == (OK, second_id)
    assert [m.member_id for m in joined.members] == [second_id]


def test_leader_that_joins_again_starts_a_rebalance(calls: GroupCalls, group: str) -> None:
    member = calls.stable_alone(group)
    again = calls.join(group, member.member_id)
    assert (again.error_code, again.generation_id) == (OK, member.generation + 1)


def test_protocols_without_common_ground_are_refused(calls: GroupCalls, other: GroupCalls, group: str) -> None:
    calls.stable_alone(group, protocols=("range",))
    assert other.join(group, protocols=("sticky",)).error_code is ErrorCode.inconsistent_group_protocol
    assert other.join(group, protocol_type="connect").error_code is ErrorCode.inconsistent_group_protocol
    assert other.join(fresh("group"), protocols=()).error_code is ErrorCode.inconsistent_group_protocol


def test_session_timeouts_out_of_bounds_are_refused(calls: GroupCalls, group: str) -> None:
    for session_ms in (5_999, 1_800_001):
        refused = calls.join(group, session_ms=session_ms)
        assert refused.error_code is ErrorCode.invalid_session_timeout
    assert calls.join("").error_code is ErrorCode.invalid_group_id


def test_member_that_falls_silent_is_removed(calls: GroupCalls, other: GroupCalls, group: str) -> None:
    """F18: its partitions go to those who are left."""
    silent = calls.stable_alone(group)
    second_id = other.join(group).member_id
    joined = other.join(group, second_id, rebalance_ms=60_000, session_ms=30_000)
    assert (joined.error_code, joined.leader) == (OK, second_id)
    assert calls.heartbeat(group, silent) is ErrorCode.unknown_member_id


def test_static_member_comes_back_without_a_rebalance_and_fences_its_former_self(calls: GroupCalls, group: str) -> None:
    before = calls.stable_alone(group, instance_id="one")
    back = calls.join(group, instance_id="one")
    assert (back.error_code, back.generation_id) == (OK, before.generation)
    assert back.member_id != before.member_id
    assert back.skip_assignment, "it leads, but the assignment stands"
    assert [m.group_instance_id for m in back.members] == ["one"]
    assert calls.heartbeat(group, before) is ErrorCode.fenced_instance_id
    assert calls.join(group, before.member_id, instance_id="one").error_code is ErrorCode.fenced_instance_id
    now = Member(back.member_id, back.generation_id, "one")
    assert calls.sync(group, now).assignment == b"mine"
    assert calls.heartbeat(group, now) is OK


def test_static_leader_with_an_older_client_is_not_told_to_lead(calls: GroupCalls, group: str) -> None:
    before = calls.stable_alone(group, instance_id="one")
    back = calls.join(group, instance_id="one", version=8)
    assert (back.error_code, back.leader, back.members) == (OK, before.member_id, ())


def test_administrator_removes_a_static_member_by_its_instance_id(calls: GroupCalls, group: str) -> None:
    calls.stable_alone(group, instance_id="one")
    assert calls.leave(group, "", "two") is ErrorCode.unknown_member_id
    assert calls.leave(group, "", "one") is OK
    assert calls.describe(group).group_state == "Empty"


def test_commit_is_checked_against_member_and_generation(calls: GroupCalls, group: str) -> None:
    topic = calls.topic()
    member = calls.stable_alone(group)
    good = {"generation": member.generation, "member_id": member.member_id}
    assert calls.commit_offset(group, topic, 3, **good) is OK
    assert calls.commit_offset(group, topic, 4, **{**good, "generation": 7}) is ErrorCode.illegal_generation
    assert calls.commit_offset(group, topic, 4, **{**good, "member_id": "x"}) is ErrorCode.unknown_member_id
    assert calls.commit_offset(group, topic, 4) is ErrorCode.unknown_member_id
    assert calls.fetch_offset(group, topic).offset == 3


def test_commit_to_a_group_that_is_not_there(calls: GroupCalls, group: str) -> None:
    topic = calls.topic()
    member = {"generation": 1, "member_id": "x"}
    assert calls.commit_offset(group, topic, 1, **member) is ErrorCode.group_id_not_found
    assert calls.fetch_offset(group, topic).offset == -1
    assert calls.commit_offset(group, topic, 1) is OK
    listed = calls.listed()[group]
    assert (listed.group_state, listed.protocol_type, listed.group_type) == ("Empty", "", "classic")


def test_committed_offset_keeps_metadata_and_leader_epoch(calls: GroupCalls, group: str) -> None:
    """S3."""
    topic = calls.topic()
    assert calls.commit_offset(group, topic, 12, metadata="m" * 4096, leader_epoch=0) is OK
    assert calls.commit_offset(group, topic, 13, metadata="m" * 4097) is ErrorCode.offset_metadata_too_large
    fetched = calls.fetch_offset(group, topic)
    assert (fetched.offset, fetched.metadata, fetched.leader_epoch) == (12, "m" * 4096, 0)


def test_one_groups_commit_says_nothing_about_anothers(calls: GroupCalls, group: str) -> None:
    """S21; many groups in one request."""
    topic, second = calls.topic(), fresh("group")
    calls.coordinator(second, 0)
    assert calls.commit_offset(group, topic, 1) is OK
    assert calls.commit_offset(second, topic, 2) is OK
    names = (group, second, fresh("group"))
    answer = calls.call(9, 8, groups=[{"group_id": name, "topics": None} for name in names], require_stable=False)
    found = {g.group_id: [(t.name, p.committed_offset) for t in g.topics for p in t.partitions] for g in answer.groups}
    assert found == {group: [(topic, 1)], second: [(topic, 2)], names[2]: []}
    assert all(g.error_code is OK for g in answer.groups)


def test_offsets_are_committed_and_fetched_by_topic_id(calls: GroupCalls, group: str) -> None:
    topic = calls.topic()
    topic_id, unknown = calls.topic_id(topic), uuid.uuid4()
    item = {"partition_index": 0, "committed_offset": 8, "committed_leader_epoch": -1, "committed_metadata": ""}
    committed = calls.call(
        8,
        10,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"topic_id": topic_id, "partitions": [item]}, {"topic_id": unknown, "partitions": [item]}],
    )
    codes = {t.topic_id: t.partitions[0].error_code for t in committed.topics}
    assert codes == {topic_id: OK, unknown: ErrorCode.unknown_topic_id}
    fetched = calls.call(
        9,
        10,
        groups=[
            {
                "group_id": group,
                "member_id": None,
                "member_epoch": -1,
                "topics": [
                    {"topic_id": topic_id, "partition_indexes": [0]},
                    {"topic_id": unknown, "partition_indexes": [0]},
                ],
            }
        ],
        require_stable=False,
    )
    answers = {t.topic_id: (p.error_code, p.committed_offset) for t in fetched.groups[0].topics for p in t.partitions}
    assert answers == {topic_id: (OK, 8), unknown: (ErrorCode.unknown_topic_id, -1)}


def test_commit_to_a_topic_that_is_not_there_is_refused(calls: GroupCalls, group: str) -> None:
    topic = calls.topic()
    assert calls.commit_offset(group, fresh("nowhere"), 1) is ErrorCode.unknown_topic_or_partition
    assert calls.commit_offset(group, topic, 1, partition=9) is ErrorCode.unknown_topic_or_partition


def test_group_is_described_in_every_state(calls: GroupCalls, group: str) -> None:
    missing = calls.describe(group)
    assert (missing.error_code, missing.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert calls.describe(group, version=5).error_code is OK
    member = calls.stable_alone(group)
    stable = calls.describe(group)
    assert (stable.error_code, stable.group_state, stable.protocol_type, stable.protocol_data) == (
        OK,
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.client_id, m.member_assignment) for m in stable.members] == [
        (member.member_id, "raw", b"mine")
    ]
    assert stable.members[0].client_host == "/127.0.0.1"
    assert calls.leave(group, member.member_id) is OK
    assert calls.describe(group).group_state == "Empty"


def test_only_an_empty_group_is_deleted_and_its_offsets_with_it(calls: GroupCalls, group: str) -> None:
    topic = calls.topic()
    member = calls.stable_alone(group)
    assert calls.commit_offset(group, topic, 5, generation=member.generation, member_id=member.member_id) is OK
    assert calls.delete(group) == [ErrorCode.non_empty_group]
    assert calls.leave(group, member.member_id) is OK
    assert calls.delete(group) == [OK]
    assert calls.delete(group) == [ErrorCode.group_id_not_found]
    assert calls.fetch_offset(group, topic).offset == -1
    assert group not in calls.listed()


def test_offsets_of_a_subscribed_topic_are_not_deleted(calls: GroupCalls, group: str) -> None:
    subscribed, free = calls.topic(), calls.topic()
    name = subscribed.encode()
    metadata = b"\0\0" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    for topic in (subscribed, free):
        assert calls.commit_offset(group, topic, 5) is OK
    calls.stable_alone(group, metadata=metadata)
    answer = calls.call(
        47, 0, group_id=group, topics=[{"name": t, "partitions": [{"partition_index": 0}]} for t in (subscribed, free)]
    )
    codes = {t.name: t.partitions[0].error_code for t in answer.topics}
    assert (answer.error_code, codes) == (OK, {subscribed: ErrorCode.group_subscribed_to_topic, free: OK})
    assert calls.fetch_offset(group, free).offset == -1
    assert calls.fetch_offset(group, subscribed).offset == 5


def test_offsets_go_with_their_topic(calls: GroupCalls, group: str) -> None:
    """F27: a topic that is made again does not inherit them."""
    topic = calls.topic()
    assert calls.commit_offset(group, topic, 5) is OK
    deleted = calls.call(20, 5, topic_names=[topic], timeout=10_000)
    assert deleted.responses[0].error_code is OK
    gone = eventually(lambda: calls.fetch_offset(group, topic), lambda f: f.offset == -1)
    assert gone.offset == -1


def test_groups_are_listed_by_state_and_type(calls: GroupCalls, group: str) -> None:
    calls.stable_alone(group)
    assert group in calls.listed(states=("stable",))
    assert group in calls.listed(types=("Classic",))
    assert group not in calls.listed(states=("Empty",))
    assert group not in calls.listed(types=("consumer",))
