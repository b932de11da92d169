"""What only database sinks have to keep: a ledger that a restore sets back, timers, commits in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from atonce.delivery.events import Event, Retrying
from atonce.errors import InvariantError, LedgerMismatch, OutcomeUnknown, ReplacedError
from atonce.guarantee import Guarantee
from tests.contract.connectors.sql.database import Database, batch, identity, progress

LEVELS = list(Guarantee)


def test_timer_progress_never_moves_back(database: Database, table: str, ten: Callable[[int], Any]) -> None:
    """S20: an older progress that arrives late changes nothing."""
    who = identity(table, Guarantee.NONE)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    late, newer = progress(who, 4, sequence=5), progress(who, 6, sequence=7)
    sink.progress_on_timer(newer)
    sink.settle()
    sink._record_from_timer(late)
    assert database.ledger(table)[0] == 6
    sink.close()


def test_two_instances_after_a_restore_cannot_both_commit(
    database: Database, table: str, ten: Callable[[int], Any]
) -> None:
    """F33, F16: the restore gives the newcomer the very owner epoch that the older instance holds."""
    begun = database.sink(table).open(identity(table), ten(0).sparkSession)
    begun.claim()
    begun.close()
    older = database.rows(f"SELECT * FROM atonce_ledger WHERE name = '{table}'")[0]
    first, second = identity(table), identity(table)
    zombie = database.sink(table).open(first, ten(0).sparkSession)
    zombie.claim()
    zombie.output_and_progress(batch(ten(0), 0), progress(first, 0))
    database.run(f"DELETE FROM {table}")
    database.run(f"DELETE FROM atonce_ledger WHERE name = '{table}'")
    values = ", ".join("NULL" if each is None else repr(each) for each in older)
    database.run(f"INSERT INTO atonce_ledger VALUES ({values})")
    owner = database.sink(table).open(second, ten(0).sparkSession)
    owner.claim()
    owner.output_and_progress(batch(ten(0), 0), progress(second, 0))
    with pytest.raises(ReplacedError, match=second.instance):
        zombie.output_and_progress(batch(ten(1), 1), progress(first, 1))
    assert database.ids(table) == list(range(10))
    owner.output_and_progress(batch(ten(1), 1), progress(second, 1))
    assert database.ids(table) == list(range(20))
    zombie.close()
    owner.close()


def test_sink_of_an_earlier_claim_of_the_same_instance_writes_nothing_more(
    database: Database, table: str, ten: Callable[[int], Any]
) -> None:
    """A batch that still runs while its driver starts again: its rows and its progress come too late, both of them."""
    who = identity(table)
    earlier = database.sink(table).open(who, ten(0).sparkSession)
    earlier.claim()
    later = database.sink(table).open(replace(who, claimed=True), ten(0).sparkSession)
    later.claim()
    with pytest.raises(InvariantError, match="carries our own id"):
        earlier.output_and_progress(batch(ten(0), 0), progress(who, 0))
    later.output_and_progress(batch(ten(0), 0), progress(who, 0))
    assert database.ids(table) == list(range(10))
    earlier.close()
    later.close()


def test_what_a_sink_tells_of_a_commit_in_doubt_says_why(
    database: Database, table: str, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    who = identity(table)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    commit, lost = sink._store.commit, [True]

    def lose_once(connection: Any) -> None:
        commit(connection)
        if lost:
            lost.clear()
            raise OutcomeUnknown("the answer was lost")

    told: list[Event] = []
    made = batch(ten(0), 0, told.append)

    monkeypatch.setattr(sink._store, "commit", lose_once)
    sink.output_and_progress(made, progress(who, 0))
    assert Retrying(why="a commit's outcome is unknown; asking the ledger", in_doubt=True) in told
    assert database.ids(table) == list(range(10))
    sink.close()


@pytest.mark.parametrize("level", [Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE])
def test_failover_between_the_two_writes_neither_loses_nor_doubles_what_the_level_forbids(
    database: Database, table: str, ten: Callable[[int], Any], level: Guarantee
) -> None:
    """F33: the copy lacks just the first of the two transactions."""
    who = identity(table, level)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    sink.progress(progress(who, 0))
    sink.output(batch(ten(0), 0))
    sink.progress(progress(who, 1))
    columns = (
        "owner_epoch, instance, sequence, query_id, batch_id, positions, source_ids, fingerprint, version, details"
    )
    kept = database.rows(f"SELECT {columns} FROM atonce_ledger WHERE name = '{table}'")[0]

    def lose_the_last_transaction() -> None:
        values = ", ".join(f"{column} = {value!r}" for column, value in zip(columns.split(", "), kept, strict=True))
        database.run(f"UPDATE atonce_ledger SET {values} WHERE name = '{table}'")
        database.run(f"DELETE FROM {table} WHERE id >= 20")

    first, second = (
        (lambda: sink.progress(progress(who, 2)), lambda: sink.output(batch(ten(2), 2)))
        if level is Guarantee.AT_MOST_ONCE
        else (lambda: sink.output(batch(ten(2), 2)), lambda: sink.progress(progress(who, 2)))
    )
    first()
    lose_the_last_transaction()
    with pytest.raises(LedgerMismatch, match="went back"):
        second()
    assert database.ids(table) == list(range(10))
    assert database.ledger(table)[0] == 1
    sink.close()
