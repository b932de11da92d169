"""The SQL ledger on SQLite: claims, fencing, sequence numbers, and what it says when it is not ours any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from atonce.connectors.sql.ledger import LedgerMoved, SqlLedger, matches
from atonce.delivery.progress import REMEMBERED_CUTS, Cut, Progress
from atonce.errors import AtOnceError, InvariantError, LedgerMismatch, RefusedError, ReplacedError


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


def record(made: SqlLedger, connection: Any, progress: Progress) -> None:
    made.advance(connection, progress)
    made.acknowledged(progress)


def test_progress_is_read_back_whole_by_the_next_instance(connection: sqlite3.Connection) -> None:
    first = ledger(connection, "a")
    assert first.claim(connection) is None
    whole = replace(
        at("a", 3, 1),
        epochs={"orders/0": 5},
        first={"orders/0": 1},
        recent=tuple(Cut(batch_id=i, digest=f"{i:016x}") for i in range(REMEMBERED_CUTS)),
    )
    record(first, connection, whole)
    assert ledger(connection, "b").claim(connection) == replace(whole, instance="b")


def test_opaque_positions_stay_none(connection: sqlite3.Connection) -> None:
    first = ledger(connection, "a")
    first.claim(connection)
    for number in (1, 2):
        record(first, connection, replace(at("a", number, number), positions=None))
    recorded = ledger(connection, "b").claim(connection)
    assert recorded is not None and recorded.positions is None and recorded.sequence == 2


def test_zombie_is_fenced_after_epoch_bump(connection: sqlite3.Connection) -> None:
    zombie, owner = ledger(connection, "a"), ledger(connection, "b")
    zombie.claim(connection)
    owner.claim(connection)
    with pytest.raises(LedgerMoved):
        zombie.advance(connection, at("a", 0, 1))
    with pytest.raises(ReplacedError, match="taken over by instance b"):
        zombie.answer(connection, at("a", 0, 1))
    with pytest.raises(ReplacedError):
        zombie.reclaim(connection)
    with pytest.raises(ReplacedError):
        zombie.check(connection)
    owner.advance(connection, at("b", 0, 1))


def test_reclaim_shuts_out_an_older_hold_of_the_same_instance(connection: sqlite3.Connection) -> None:
    """The commit in doubt carries the old epoch: once the epoch is raised it can never get in."""
    in_doubt, resolving = ledger(connection, "a"), ledger(connection, "a")
    in_doubt.claim(connection)
    resolving.reclaim(connection)
    with pytest.raises(LedgerMoved):
        in_doubt.advance(connection, at("a", 0, 1))
    with pytest.raises(InvariantError, match="carries our own id"):
        in_doubt.answer(connection, at("a", 0, 1))


def test_older_progress_never_overwrites_a_newer_one(connection: sqlite3.Connection) -> None:
    """F9, S20."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    record(owner, connection, at("a", 7, sequence=8))
    assert owner.is_behind(at("a", 5, sequence=6)) and not owner.is_behind(at("a", 8, sequence=9))
    with pytest.raises(InvariantError, match="number 6 was to be recorded after number 8"):
        owner.advance(connection, at("a", 5, sequence=6))
    row = owner.read(connection)
    assert row is not None and row.progress.batch_id == 7


def test_commit_whose_answer_was_lost_is_recognised_when_it_meets_itself(connection: sqlite3.Connection) -> None:
    owner = ledger(connection, "a")
    owner.claim(connection)
    owner.advance(connection, at("a", 0, 1))
    with pytest.raises(LedgerMoved):
        owner.advance(connection, at("a", 0, 1))
    owner.answer(connection, at("a", 0, 1))
    record(owner, connection, at("a", 1, 2))


def test_database_that_goes_back_under_its_owner_is_noticed_and_both_positions_are_named(
    connection: sqlite3.Connection,
) -> None:
    """F33: the next batch must not land on an older one."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    record(owner, connection, at("a", 0, 1))
    older = connection.execute("SELECT * FROM atonce_ledger").fetchone()
    record(owner, connection, at("a", 1, 2))
    set_back(connection, older)
    for attempt in (lambda: owner.advance(connection, at("a", 2, 3)), lambda: owner.check(connection)):
        with pytest.raises(AtOnceError):
            attempt()
    both = r'stands at batch 0, \{"orders/0": 1\}.*left at batch 1, \{"orders/0": 2\}'
    with pytest.raises(LedgerMismatch, match=both):
        owner.answer(connection, at("a", 2, 3))
    assert owner.resolve(connection, owner.left_at)[1] is not None
    record(owner, connection, at("a", 1, 2))  # what was read replaces what was remembered, also downwards


def test_two_instances_that_got_one_epoch_from_a_restore_cannot_both_commit(connection: sqlite3.Connection) -> None:
    """F33, F16: the newcomer's claim after a restore gives it the very epoch and sequence that the older one holds."""
    ledger(connection, "x").claim(connection)
    older = connection.execute("SELECT * FROM atonce_ledger").fetchone()
    zombie, owner = ledger(connection, "a"), ledger(connection, "b")
    zombie.claim(connection)
    record(zombie, connection, at("a", 0, 1))
    set_back(connection, older)
    owner.claim(connection)
    record(owner, connection, at("b", 5, 1))
    with pytest.raises(LedgerMoved):
        zombie.advance(connection, at("a", 1, 2))
    with pytest.raises(ReplacedError, match="taken over by instance b"):
        zombie.answer(connection, at("a", 1, 2))


def test_database_that_goes_back_to_before_the_claim_is_not_taken_for_a_newer_instance(
    connection: sqlite3.Connection,
) -> None:
    former, owner = ledger(connection, "x"), ledger(connection, "a")
    former.claim(connection)
    record(former, connection, at("x", 0, 1))
    older = connection.execute("SELECT * FROM atonce_ledger").fetchone()
    owner.claim(connection)
    record(owner, connection, at("a", 1, 2))
    set_back(connection, older)
    with pytest.raises(LedgerMismatch, match="went back to before this instance began"):
        owner.answer(connection, at("a", 2, 3))
    again = SqlLedger(name="orders", instance="a", before=owner.before)
    assert again.reclaim(connection) == replace(at("x", 0, 1), instance="a")
    with pytest.raises(LedgerMoved):
        former.advance(connection, at("x", 1, 2))


def test_claim_that_a_newcomer_made_after_the_database_went_back_is_not_taken_from_it(
    connection: sqlite3.Connection,
) -> None:
    ledger(connection, "x").claim(connection)
    older = connection.execute("SELECT * FROM atonce_ledger").fetchone()
    owner = ledger(connection, "a")
    owner.claim(connection)
    set_back(connection, older)
    ledger(connection, "b").claim(connection)
    with pytest.raises(ReplacedError, match="instance b"):
        SqlLedger(name="orders", instance="a", before=owner.before).reclaim(connection)


def test_output_whose_progress_comes_apart_marks_the_row_so_that_both_go_back_together(
    connection: sqlite3.Connection,
) -> None:
    """F33: at-least-once and at-most-once write output and progress in two transactions, and one of them may be lost."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    record(owner, connection, at("a", 0, 1))
    older = connection.execute("SELECT * FROM atonce_ledger").fetchone()
    owner.marked(owner.mark(connection))
    set_back(connection, older)
    with pytest.raises(LedgerMoved):
        owner.advance(connection, at("a", 1, 2))
    with pytest.raises(LedgerMismatch, match="went back"):
        owner.answer(connection, at("a", 1, 2))


def test_commit_whose_answer_was_lost_is_not_taken_for_a_database_that_went_back(
    connection: sqlite3.Connection,
) -> None:
    """The timer of level none, and the refresh of quiet times, go on with something newer."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    owner.advance(connection, at("a", 0, 1))  # in, and nobody was told
    owner.check(connection)
    owner.advance(connection, at("a", 1, 2))
    record(owner, connection, at("a", 2, 3))
    row = owner.read(connection)
    assert row is not None and row.progress.batch_id == 2


def set_back(connection: sqlite3.Connection, row: Any) -> None:
    connection.execute("DELETE FROM atonce_ledger")
    connection.execute(f"INSERT INTO atonce_ledger VALUES ({', '.join('?' * len(row))})", row)


def test_table_of_an_older_version_is_carried_over_with_its_rows(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE atonce_ledger (name text PRIMARY KEY, owner_epoch bigint NOT NULL, instance text NOT NULL, "
        "sequence bigint NOT NULL, query_id text NOT NULL, batch_id bigint NOT NULL, positions text, "
        "source_ids text NOT NULL, fingerprint text NOT NULL, updated_at text NOT NULL)"
    )
    connection.execute(
        "INSERT INTO atonce_ledger VALUES ('orders', 4, 'x', 9, 'q', 3, '{\"orders/0\": 4}', '{}', 'source:1', '')"
    )
    owner = ledger(connection, "a")
    assert owner.is_older(connection)
    owner.carry_over(connection)
    assert not owner.is_older(connection)
    recorded = owner.claim(connection)
    assert recorded is not None and (recorded.batch_id, recorded.positions) == (3, {"orders/0": 4})
    record(owner, connection, replace(at("a", 4, 10), epochs={"orders/0": 1}))
    row = owner.read(connection)
    assert row is not None and row.progress.epochs == {"orders/0": 1}


def test_details_that_an_older_program_left_behind_are_not_believed(connection: sqlite3.Connection) -> None:
    owner = ledger(connection, "a")
    owner.claim(connection)
    record(owner, connection, replace(at("a", 0, 1), epochs={"orders/0": 1}))
    connection.execute("UPDATE atonce_ledger SET sequence = 2, batch_id = 1")
    row = owner.read(connection)
    assert row is not None and row.progress.epochs == {}


def test_row_of_a_newer_version_is_refused_and_left_alone(connection: sqlite3.Connection) -> None:
    ledger(connection, "x").claim(connection)
    connection.execute("UPDATE atonce_ledger SET version = 3")
    connection.execute("BEGIN")
    with pytest.raises(RefusedError, match=r"newer AtOnce \(format 3; this one knows up to 2\)"):
        ledger(connection, "a").claim(connection)
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT instance, owner_epoch FROM atonce_ledger").fetchone() == ("x", 1)


def test_progress_before_a_claim_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvariantError, match="before the ledger was claimed"):
        ledger(connection, "a").advance(connection, at("a", 0, sequence=1))


def test_deleted_row_stops_the_pipeline(connection: sqlite3.Connection) -> None:
    """F27: someone removed the ledger while the pipeline ran; to go on would be to guess."""
    owner = ledger(connection, "a")
    owner.claim(connection)
    connection.execute("DELETE FROM atonce_ledger")
    with pytest.raises(LedgerMoved):
        owner.advance(connection, at("a", 0, 1))
    with pytest.raises(LedgerMismatch, match="was deleted while it ran"):
        owner.answer(connection, at("a", 0, 1))


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


def test_a_resolution_that_runs_again_still_knows_where_the_row_was_left(connection: sqlite3.Connection) -> None:
    """Its first try has read the row of a database that went back, and its answer was lost."""
    made = ledger(connection, "a")
    made.claim(connection)
    record(made, connection, at("a", 0, 1))
    before = connection.execute("SELECT sequence, batch_id, positions FROM atonce_ledger").fetchone()
    record(made, connection, at("a", 1, 2))
    connection.execute("UPDATE atonce_ledger SET sequence = ?, batch_id = ?, positions = ?", before)
    left = made.left_at
    for _ in range(2):
        recorded, went_back = made.resolve(connection, left)
        assert recorded.sequence == 1 and isinstance(went_back, LedgerMismatch)
