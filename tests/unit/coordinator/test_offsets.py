"""Committed offsets: transactions, expiry, restart (S3, S12, S20, F9, F27)."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import OFFSETS_PARTITION, ProducerIdAndEpoch, TopicPartition
from atonce.coordinator.groups.groups import GroupConfig, OffsetToCommit
from tests.simulation.coordinator.desk import Desk

OK = ErrorCode.none
IN = TopicPartition("in", 0)
OTHER = TopicPartition("in", 1)
MINUTE_MS = 60_000


@pytest.fixture
def desk() -> Desk:
    return Desk(group_config=GroupConfig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS))


def commit(
    desk: Desk, offset: int, partition: TopicPartition = IN, *, retention_ms: int = -1, metadata: str = ""
) -> ErrorCode:
    decision = desk.groups.commit_offsets(
        desk.now_ms, "g", "", None, -1, [OffsetToCommit(partition, offset, 3, metadata)], retention_ms=retention_ms
    )
    return desk.group(decision)[partition]


def fetch(desk: Desk, partition: TopicPartition = IN, *, stable: bool = False) -> int | ErrorCode:
    error, offsets = desk.group(desk.groups.fetch_offsets("g", [partition], require_stable=stable))
    assert error is OK
    fetched = offsets[partition]
    return fetched.committed.offset if fetched.error is OK else fetched.error


def in_transaction(desk: Desk, producer: ProducerIdAndEpoch, offset: int) -> ErrorCode:
    assert desk.add("t", producer, OFFSETS_PARTITION) is OK
    decision = desk.groups.commit_offsets_in_transaction(
        desk.now_ms, "g", "", None, -1, [OffsetToCommit(IN, offset)], producer
    )
    return desk.group(decision)[IN]


def producer(desk: Desk) -> ProducerIdAndEpoch:
    answer = desk.init("t")
    return ProducerIdAndEpoch(answer.producer_id, answer.epoch)


def test_committed_offset_survives_a_restart_with_all_it_carries(desk: Desk) -> None:
    assert commit(desk, 12, metadata="token") is OK
    desk.restart()
    _, offsets = desk.group(desk.groups.fetch_offsets("g", None, require_stable=False))
    found = offsets[IN].committed
    assert (found.offset, found.leader_epoch, found.metadata) == (12, 3, "token")


@pytest.mark.parametrize("restart_before", ["prepare", "marker", "never"])
@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction_follow_its_outcome_through_a_restart(
    desk: Desk, is_commit: bool, restart_before: str
) -> None:
    """F14."""
    commit(desk, 1)
    holder = producer(desk)
    assert in_transaction(desk, holder, 50) is OK
    if restart_before == "prepare":
        desk.restart()
    assert (fetch(desk), fetch(desk, stable=True)) == (1, ErrorCode.unstable_offset_commit)
    desk.end("t", holder, commit=is_commit)
    if restart_before == "marker":
        desk.restart()
    assert fetch(desk, stable=True) is ErrorCode.unstable_offset_commit
    desk.finish()
    expected = 50 if is_commit else 1
    assert fetch(desk, stable=True) == expected
    desk.restart()
    assert fetch(desk, stable=True) == expected


def test_plain_commit_that_came_later_is_not_moved_back_by_a_transaction(desk: Desk) -> None:
    """S20, F9: what is later in the journal wins."""
    holder = producer(desk)
    in_transaction(desk, holder, 50)
    commit(desk, 60)
    desk.end("t", holder)
    desk.finish()
    assert fetch(desk) == 60
    desk.restart()
    assert fetch(desk) == 60


def test_offsets_of_a_group_without_members_expire(desk: Desk) -> None:
    """F27: and the group with them."""
    commit(desk, 5)
    desk.advance(5 * MINUTE_MS)
    commit(desk, 9, OTHER)
    desk.advance(6 * MINUTE_MS)
    assert (fetch(desk), fetch(desk, OTHER)) == (-1, 9)
    desk.advance(5 * MINUTE_MS)
    assert fetch(desk, OTHER) == -1
    assert desk.groups.list_groups() == []
    desk.restart()
    assert desk.groups.list_groups() == []


def test_retention_of_an_old_client_counts_for_its_commit(desk: Desk) -> None:
    commit(desk, 5, retention_ms=30 * MINUTE_MS)
    desk.advance(20 * MINUTE_MS)
    desk.restart()
    assert fetch(desk) == 5
    desk.advance(11 * MINUTE_MS)
    assert fetch(desk) == -1


def test_offset_in_an_open_transaction_does_not_expire(desk: Desk) -> None:
    commit(desk, 5)
    holder = desk.init("t", timeout_ms=900_000)
    in_transaction(desk, ProducerIdAndEpoch(holder.producer_id, holder.epoch), 6)
    desk.advance(14 * MINUTE_MS)
    assert fetch(desk) == 5


def test_metadata_has_its_limit(desk: Desk) -> None:
    assert commit(desk, 1, metadata="m" * 4097) is ErrorCode.offset_metadata_too_large
    assert fetch(desk) == -1


def test_deleted_topic_takes_its_offsets_along_pending_ones_included(desk: Desk) -> None:
    commit(desk, 5)
    holder = producer(desk)
    in_transaction(desk, holder, 7)
    desk.group(desk.groups.topics_deleted(desk.now_ms, frozenset({"in"})))
    desk.end("t", holder)
    desk.finish()
    assert fetch(desk, stable=True) == -1


def test_deleting_offsets_keeps_the_others(desk: Desk) -> None:
    commit(desk, 1)
    commit(desk, 2, OTHER)
    error, answers = desk.group(desk.groups.delete_offsets(desk.now_ms, "g", [IN]))
    assert (error, answers) == (OK, {IN: OK})
    assert (fetch(desk), fetch(desk, OTHER)) == (-1, 2)
    assert desk.group(desk.groups.delete_offsets(desk.now_ms, "no", [IN]))[0] is ErrorCode.group_id_not_found
