"""Fetch sessions: named once, continued by epoch, pushed out only when quiet."""

from __future__ import annotations

from atonce.broker.messages import ErrorCode
from atonce.broker.sessions import FINAL_EPOCH, FetchSessions, Wanted


def wanted(partition: int, offset: int = 0) -> Wanted:
    return Wanted("t", partition, offset, 1000, -1, -1)


def test_incremental_fetch_remembers_the_partitions() -> None:
    sessions = FetchSessions(10)
    first = sessions.open(0, 0, [wanted(0), wanted(1)], [])
    assert first.session is not None and not first.incremental
    second = sessions.open(first.session_id, 1, [wanted(1, 5)], [])
    assert second.incremental
    assert [(one.partition, one.fetch_offset) for one in second.wanted] == [(0, 0), (1, 5)]


def test_forgotten_partition_is_gone() -> None:
    sessions = FetchSessions(10)
    first = sessions.open(0, 0, [wanted(0), wanted(1)], [])
    second = sessions.open(first.session_id, 1, [], [("t", 0)])
    assert [one.partition for one in second.wanted] == [1]


def test_wrong_epoch_and_unknown_session_are_told() -> None:
    sessions = FetchSessions(10)
    first = sessions.open(0, 0, [wanted(0)], [])
    assert sessions.open(first.session_id, 2, [], []).error is ErrorCode.invalid_fetch_session_epoch
    assert sessions.open(first.session_id + 1, 1, [], []).error is ErrorCode.fetch_session_id_not_found
    assert sessions.open(first.session_id, 1, [], []).error is ErrorCode.none
    assert sessions.open(first.session_id, 1, [], []).error is ErrorCode.invalid_fetch_session_epoch


def test_final_epoch_closes_the_session() -> None:
    sessions = FetchSessions(10)
    first = sessions.open(0, 0, [wanted(0)], [])
    closed = sessions.open(first.session_id, FINAL_EPOCH, [wanted(0)], [])
    assert closed.session is None and len(sessions) == 0


def test_no_session_is_made_when_all_slots_are_busy() -> None:
    sessions = FetchSessions(1)
    kept = sessions.open(0, 0, [wanted(0)], [])
    refused = sessions.open(0, 0, [wanted(0)], [])
    assert refused.session_id == 0 and refused.error is ErrorCode.none
    assert sessions.open(kept.session_id, 1, [], []).error is ErrorCode.none


def test_partition_that_was_served_goes_to_the_end() -> None:
    sessions = FetchSessions(10)
    first = sessions.open(0, 0, [wanted(0), wanted(1)], [])
    assert first.session is not None
    FetchSessions.rotate(first.session, [("t", 0)])
    assert [one.partition for one in sessions.open(first.session_id, 1, [], []).wanted] == [1, 0]


def test_one_connection_keeps_a_few_sessions_and_cannot_take_all_slots() -> None:
    sessions = FetchSessions(100)
    known = sessions.open(0, 0, [], (), owner=1)
    for _ in range(1000):
        assert sessions.open(0, 0, [], (), owner=2).session is not None
    assert len(sessions) <= 5
    assert sessions.open(known.session_id, 1, [], (), owner=1).error is ErrorCode.none


def test_sessions_of_closed_connections_make_room() -> None:
    sessions = FetchSessions(3)
    for owner in range(3):
        sessions.open(0, 0, [], (), owner=owner)
    assert sessions.open(0, 0, [], (), owner=9).session is None, "all are in use"
    sessions.connection_closed(1)
    assert sessions.open(0, 0, [], (), owner=9).session is not None


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(1000)
    many = [Wanted("t", i, 0, 1, -1, -1) for i in range(50_000)]
    opened = [sessions.open(0, 0, list(many), (), owner=owner).session for owner in range(10)]
    assert sum(session is not None for session in opened) == 4
