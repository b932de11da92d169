"""The SQL ledger on SQLite: claims, fencing, sequence numbers, and what it says when it is not ours any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from atonce.errors import InvariantError, ReplacedError
from atonce.ledger.progress import Progress
from atonce.ledger.sql import SqlLedger, matches


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:", isolation_level=None)
    yield made
    made.close()


def ledger(connection: Any, instance: str) -> SqlLedger:
    made = SqlLedger(name="orders", instance=instance)
    made.create(connection)
    return made


def at(instance: str, batch_id: int, sequence: int = 0) -> Progress:
    return Progress(
        instance=instance,
        query_id="q",
        batch_id=batch_id,
        positions={"orders/0": batch_id + 1},
        source_ids={"orders": "topic-id"},
        fingerprint="source:1",
        sequence=sequence,
    )


def test_progress_is_read_back_whole_by_the_next_instance(connection: sqlite3.Connection) -> None:
    first = ledger(connection, "a")
    assert first.claim(connection) is None
    first.advance(connection, first.numbered(at("a", 3)))
    recorded = ledger(connection, "b").claim(connection)
    assert recorded == Progress(
        instance="b",
        query_id="q",
        batch_id=3,
        positions={"orders/0": 4},
        source_ids={"orders": "topic-id"},
        fingerprint="source:1",
        sequence=1,
    )


def test_opaque_positions_stay_none(connection: sqlite3.Connection) -> None:
    first = ledger(connection, "a")
    first.claim(connection)
    first.advance(connection, Progress(instance="a", query_id="q", batch_id=0, positions=None, sequence=1))
    recorded = ledger(connection, "b").claim(connection)
    assert recorded is not None and recorded.positions is None


def test_zombie_is_fenced_after_epoch_bump(connection: sqlite3.Connection) -> None:
    zombie, owner = ledger(connection, "a"), ledger(connection, "b")
    zombie.claim(connection)
    owner.claim(connection)
    with pytest.raises(ReplacedError, match="taken over by instance b"):
        zombie.advance(connection, zombie.numbered(at("a", 0)))
    with pytest.raises(ReplacedError):
        zombie.reclaim(connection)
    owner.advance(connection, owner.numbered(at("b", 0)))


def test_reclaim_shuts_out_an_older_hold_of_the_same_instance(connection: sqlite3.Connection) -> None:
    """The commit in doubt carries the old epoch: once the epoch is raised it can never get in."""
    in_doubt, resolving = ledger(connection, "a"), ledger(connection, "a")
    in_doubt.claim(connection)
    resolving.reclaim(connection)
    with pytest.raises(InvariantError, match="carries our own id"):
        in_doubt.advance(connection, in_doubt.numbered(at("a", 0)))


def test_older_progress_never_overwrites_a_newer_one(connection: sqlite3.Connection) -> None:
    """F9, S20."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    owner.advance(connection, at("a", 7, sequence=8))
    owner.advance(connection, at("a", 5, sequence=6))
    row = owner.read(connection)
    assert row is not None and row.progress.batch_id == 7


def test_progress_before_a_claim_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvariantError, match="before the ledger was claimed"):
        ledger(connection, "a").advance(connection, at("a", 0, sequence=1))


def test_deleted_row_stops_the_pipeline(connection: sqlite3.Connection) -> None:
    """F27: someone removed the ledger while the pipeline ran; to go on would be to guess."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    connection.execute("DELETE FROM atonce_ledger")
    with pytest.raises(InvariantError, match="was deleted while it ran"):
        owner.advance(connection, owner.numbered(at("a", 0)))


def test_numbers_grow_and_a_numbered_progress_keeps_its_number(connection: sqlite3.Connection) -> None:
    owner = ledger(connection, "a")
    owner.claim(connection)
    first, second = owner.numbered(at("a", 0)), owner.numbered(at("a", 1))
    assert (first.sequence, second.sequence) == (1, 2)
    assert owner.numbered(at("a", 2, sequence=9)).sequence == 9
    owner.recorded(at("a", 2, sequence=9))
    assert owner.numbered(at("a", 3, sequence=4)).sequence == 10


def test_a_commit_in_doubt_is_recognised_by_batch_and_positions() -> None:
    wanted = at("a", 4)
    assert matches(at("a", 4), wanted)
    assert not matches(at("a", 3), wanted)
    assert not matches(at("b", 4), wanted)
    moved = Progress(instance="a", query_id="q", batch_id=4, positions={"orders/0": 99})
    assert not matches(moved, wanted)


def test_name_of_the_table_may_hold_what_sql_reads_as_its_own(connection: sqlite3.Connection) -> None:
    odd = SqlLedger(name="orders", instance="a", table='"odd {name} 100%"')
    odd.create(connection)
    assert odd.claim(connection) is None
