"""One body for every database sink and level: the two writes, crashes between them, fencing (S4-S7, S14, S18, F6, F7, F16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from atonce.delivery.events import Event, Retrying
from atonce.errors import AttemptAborted, InvariantError, LedgerMismatch, OutcomeUnknown, ReplacedError
from atonce.guarantee import ORDERS, Guarantee
from tests.contract.sinks.database import Crash, Database, batch, crash_at, identity, progress

LEVELS = list(Guarantee)


class Writes:
    """`guarantee.Delivery` over an open sink, dying before the step it is told."""

    def __init__(self, sink: Any, df: Any, who: Any, number: int, dies_before: str | None = None) -> None:
        self.sink, self.df, self.who, self.number, self.dies_before = sink, df, who, number, dies_before

    def _step(self, name: str) -> None:
        if name == self.dies_before:
            raise Crash(name)

    def output(self) -> None:
        self._step("output")
        self.sink.output(batch(self.df, self.number))

    def progress(self) -> None:
        self._step("progress")
        self.sink.progress(progress(self.who, self.number))

    def progress_on_timer(self) -> None:
        self.sink.progress_on_timer(progress(self.who, self.number))

    def output_and_progress(self) -> None:
        self.sink.output_and_progress(batch(self.df, self.number), progress(self.who, self.number))


def deliver_all(database: Database, table: str, level: Guarantee, df: Any, numbers: list[int]) -> None:
    """What a run does: claim, read the ledger, deliver what it does not hold yet, settle."""
    who = identity(table, level)
    sink = database.sink(table).open(who, df(0).sparkSession)
    try:
        recorded = sink.claim()
        for number in numbers:
            if recorded is None or number > recorded.batch_id:
                ORDERS[level](Writes(sink, df(number), who, number))
        sink.settle()
    finally:
        sink.close()


@pytest.mark.parametrize("level", LEVELS)
def test_without_a_fault_every_level_delivers_each_row_once(
    database: Database, table: str, ten: Callable[[int], Any], level: Guarantee
) -> None:
    deliver_all(database, table, level, ten, [0])
    deliver_all(database, table, level, ten, [0, 1])
    assert database.ids(table) == list(range(20))
    assert database.ledger(table)[0] == 1


@pytest.mark.parametrize("moment", ["output-done", "committing"])
def test_crash_before_the_commit_leaves_neither_rows_nor_progress(
    database: Database, table: str, ten: Callable[[int], Any], moment: str
) -> None:
    who = identity(table)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(1), 1, crash_at(moment)), progress(who, 1))
    assert database.ids(table) == list(range(10))
    assert database.ledger(table)[0] == 0
    sink.close()
    deliver_all(database, table, Guarantee.EFFECTIVELY_ONCE, ten, [1])
    assert database.ids(table) == list(range(20))


def test_crash_after_the_commit_leaves_both(database: Database, table: str, ten: Callable[[int], Any]) -> None:
    who = identity(table)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(0), 0, crash_at("committed")), progress(who, 0))
    sink.close()
    deliver_all(database, table, Guarantee.EFFECTIVELY_ONCE, ten, [0])
    assert database.ids(table) == list(range(10))


@pytest.mark.parametrize(
    ("level", "dies_before", "expected"),
    [
        (Guarantee.AT_MOST_ONCE, "output", []),
        (Guarantee.AT_LEAST_ONCE, "progress", sorted([*range(10), *range(10)])),
    ],
)
def test_a_crash_between_the_two_writes_shows_what_the_level_allows(
    database: Database,
    table: str,
    ten: Callable[[int], Any],
    level: Guarantee,
    dies_before: str,
    expected: list[int],
) -> None:
    """F6: lost under at-most-once. F7: twice under at-least-once. Never the other way round."""
    who = identity(table, level)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    with pytest.raises(Crash):
        ORDERS[level](Writes(sink, ten(0), who, 0, dies_before))
    sink.close()
    deliver_all(database, table, level, ten, [0])
    assert database.ids(table) == expected


def test_older_instance_is_fenced_and_writes_nothing(database: Database, table: str, ten: Callable[[int], Any]) -> None:
    """F16: the older of two instances finds its epoch raised, says so, and nothing of its batch is visible."""
    spark = ten(0).sparkSession
    old, new = identity(table), identity(table)
    first = database.sink(table).open(old, spark)
    first.claim()
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    second = database.sink(table).open(new, spark)
    recorded = second.claim()
    assert recorded is not None and recorded.batch_id == 0 and recorded.positions == {"t/0": 10}
    with pytest.raises(ReplacedError, match=new.instance):
        first.check_claim()
    second.check_claim()
    with pytest.raises(ReplacedError, match=new.instance):
        first.output_and_progress(batch(ten(1), 1), progress(old, 1))
    with pytest.raises(ReplacedError):
        first.progress(progress(old, 1))
    with pytest.raises(ReplacedError):
        first.claim()
    second.output_and_progress(batch(ten(1), 1), progress(new, 1))
    assert database.ids(table) == list(range(20))
    first.close()
    second.close()


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


def test_progress_recorded_first_survives_a_claim_that_records_nothing(
    database: Database, table: str, ten: Callable[[int], Any]
) -> None:
    who = identity(table)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    assert sink.claim() is None
    sink.close()
    again = database.sink(table).open(identity(table), ten(0).sparkSession)
    assert again.claim() is None, "nothing was ever recorded, so this is still a new pipeline"
    again.progress(progress(who, -1, sequence=1))
    again.close()
    third = database.sink(table).open(identity(table), ten(0).sparkSession)
    recorded = third.claim()
    assert recorded is not None and recorded.batch_id == -1 and recorded.positions == {"t/0": 0}
    third.close()


def test_task_that_raises_leaves_nothing_and_keeps_the_users_own_error(
    database: Database, table: str, ten: Callable[[int], Any]
) -> None:
    """F20: rows of the partition that was fine had already arrived at the driver."""
    who = identity(table)
    sink = database.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    bad = ten(0).selectExpr("id", "CASE WHEN id = 7 THEN raise_error('mine') ELSE body END AS body")
    with pytest.raises(Exception, match="mine") as raised:
        sink.output_and_progress(batch(bad, 0), progress(who, 0))
    assert not isinstance(raised.value, AttemptAborted)
    assert database.ids(table) == []
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    assert database.ids(table) == list(range(10))
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
    assert Retrying(why="a commit's outcome is unknown; asking the ledger") in told
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
