"""One body for every sink and level: the two writes, crashes between them, fencing (S4-S7, S14, S18, F6, F7, F16).

The registry is its list: a sink that is added there is held to this, or the first test here fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atonce.errors import AttemptAborted, ReplacedError
from atonce.guarantee import ORDERS, Guarantee
from atonce.plugins import plugins
from tests.contract.connectors.sql.database import Crash, batch, crash_at, identity, progress
from tests.contract.connectors.systems import SYSTEMS, System, fresh_name

LEVELS = list(Guarantee)
SOAK = pytest.mark.soak
SINKS = [
    *(name for name, plugin in plugins("sink").items() if plugin.package == "atonce"),
    "kafka-protocol-1",
    *(pytest.param(name, marks=SOAK) for name in ("kafka-3.9", "kafka-3.9-unverified", "kafka-4.3-v1")),
]


@pytest.fixture(params=SINKS)
def system(request: pytest.FixtureRequest) -> System:
    return SYSTEMS[request.param](request)


@pytest.fixture
def name() -> str:
    """A table, or topic, of the test's own."""
    return fresh_name()


@pytest.fixture
def ten(spark: Any, system: System) -> Callable[[int], Any]:
    """Batch N holds the ids 10 N to 10 N + 9, in two partitions."""
    return lambda number: system.rows(spark.range(number * 10, number * 10 + 10, 1, 2))


def recorded(system: System, name: str, ten: Callable[[int], Any]) -> int:
    """The last batch that the ledger holds, as the next instance finds it."""
    sink = system.sink(name).open(identity(name), ten(0).sparkSession)
    found = sink.claim()
    sink.close()
    return -1 if found is None else int(found.batch_id)


class Writes:
    """`guarantee.Delivery` over an open sink, dying before the step it is told."""

    def __init__(
        self, sink: Any, df: Any, who: Any, number: int, dies_before: str | None = None, sequence: int | None = None
    ) -> None:
        self.sink, self.df, self.number, self.dies_before = sink, df, number, dies_before
        self.after = progress(who, number, sequence)

    def _step(self, name: str) -> None:
        if name == self.dies_before:
            raise Crash(name)

    def output(self) -> None:
        self._step("output")
        self.sink.output(batch(self.df, self.number))

    def progress(self) -> None:
        self._step("progress")
        self.sink.progress(self.after)

    def progress_on_timer(self) -> None:
        self.sink.progress_on_timer(self.after)

    def output_and_progress(self) -> None:
        self.sink.output_and_progress(batch(self.df, self.number), self.after)


def deliver_all(system: System, name: str, level: Guarantee, df: Any, numbers: list[int]) -> None:
    """What a run does: claim, read the ledger, deliver what it does not hold yet, settle."""
    who = identity(name, level)
    sink = system.sink(name).open(who, df(0).sparkSession)
    try:
        recorded = sink.claim()
        sequence = 0 if recorded is None else recorded.sequence
        for number in numbers:
            if recorded is None or number > recorded.batch_id:
                sequence += 1
                ORDERS[level](Writes(sink, df(number), who, number, sequence=sequence))
        sink.settle()
    finally:
        sink.close()


@pytest.mark.parametrize("level", LEVELS)
def test_without_a_fault_every_level_delivers_each_row_once(
    system: System, name: str, ten: Callable[[int], Any], level: Guarantee
) -> None:
    deliver_all(system, name, level, ten, [0])
    deliver_all(system, name, level, ten, [0, 1])
    assert system.ids(name) == list(range(20))
    assert recorded(system, name, ten) == 1


def test_a_look_at_the_ledger_makes_nothing_and_fences_nobody(
    system: System, name: str, ten: Callable[[int], Any]
) -> None:
    who, spark = identity(name), ten(0).sparkSession
    looking = system.sink(name).open(identity(name), spark)
    owner = system.sink(name).open(who, spark)
    try:
        assert looking.peek() is None
        assert owner.claim() is None, "whoever looks has left no claim"
        owner.output_and_progress(batch(ten(0), 0), progress(who, 0))
        found = looking.peek()
        assert found is not None and (found.instance, found.batch_id) == (who.instance, 0)
        owner.output_and_progress(batch(ten(1), 1), progress(who, 1))
        owner.settle()
    finally:
        looking.close()
        owner.close()
    assert system.ids(name) == list(range(20))


@pytest.mark.parametrize("moment", ["output-done", "committing"])
def test_crash_before_the_commit_leaves_neither_rows_nor_progress(
    system: System, name: str, ten: Callable[[int], Any], moment: str
) -> None:
    who = identity(name)
    sink = system.sink(name).open(who, ten(0).sparkSession)
    sink.claim()
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    sink.settle()
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(1), 1, crash_at(moment)), progress(who, 1))
    assert system.ids(name) == list(range(10))
    assert recorded(system, name, ten) == 0
    sink.close()
    deliver_all(system, name, Guarantee.EFFECTIVELY_ONCE, ten, [1])
    assert system.ids(name) == list(range(20))


def test_crash_after_the_commit_leaves_both(system: System, name: str, ten: Callable[[int], Any]) -> None:
    who = identity(name)
    sink = system.sink(name).open(who, ten(0).sparkSession)
    sink.claim()
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(0), 0, crash_at("committed")), progress(who, 0))
    sink.close()
    deliver_all(system, name, Guarantee.EFFECTIVELY_ONCE, ten, [0])
    assert system.ids(name) == list(range(10))


@pytest.mark.parametrize(
    ("level", "dies_before", "expected"),
    [
        (Guarantee.AT_MOST_ONCE, "output", []),
        (Guarantee.AT_LEAST_ONCE, "progress", sorted([*range(10), *range(10)])),
    ],
)
def test_a_crash_between_the_two_writes_shows_what_the_level_allows(
    system: System,
    name: str,
    ten: Callable[[int], Any],
    level: Guarantee,
    dies_before: str,
    expected: list[int],
) -> None:
    """F6: lost under at-most-once. F7: twice under at-least-once. Never the other way round."""
    who = identity(name, level)
    sink = system.sink(name).open(who, ten(0).sparkSession)
    sink.claim()
    with pytest.raises(Crash):
        ORDERS[level](Writes(sink, ten(0), who, 0, dies_before))
    sink.close()
    deliver_all(system, name, level, ten, [0])
    assert system.ids(name) == expected


def test_older_instance_is_fenced_and_writes_nothing(system: System, name: str, ten: Callable[[int], Any]) -> None:
    """F16: the older of two instances finds its epoch raised, says so, and nothing of its batch is visible."""
    spark = ten(0).sparkSession
    old, new = identity(name), identity(name)
    first = system.sink(name).open(old, spark)
    first.claim()
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    second = system.sink(name).open(new, spark)
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
    second.settle()
    assert system.ids(name) == list(range(20))
    first.close()
    second.close()


def test_progress_recorded_first_survives_a_claim_that_records_nothing(
    system: System, name: str, ten: Callable[[int], Any]
) -> None:
    who = identity(name)
    sink = system.sink(name).open(who, ten(0).sparkSession)
    assert sink.claim() is None
    sink.close()
    again = system.sink(name).open(identity(name), ten(0).sparkSession)
    assert again.claim() is None, "nothing was ever recorded, so this is still a new pipeline"
    again.progress(progress(who, -1, sequence=1))
    again.close()
    third = system.sink(name).open(identity(name), ten(0).sparkSession)
    recorded = third.claim()
    assert recorded is not None and recorded.batch_id == -1 and recorded.positions == {"t/0": 0}
    third.close()


def test_task_that_raises_leaves_nothing_and_keeps_the_users_own_error(
    system: System, name: str, ten: Callable[[int], Any]
) -> None:
    """F20: rows of the partition that was fine had already arrived at the driver."""
    who = identity(name)
    sink = system.sink(name).open(who, ten(0).sparkSession)
    sink.claim()
    last = ten(0).columns[0]
    bad = ten(0).selectExpr(
        last, f"CASE WHEN CAST({last} AS STRING) = '7' THEN raise_error('mine') ELSE value END AS value"
    )
    with pytest.raises(Exception, match="mine") as raised:
        sink.output_and_progress(batch(bad, 0), progress(who, 0))
    assert not isinstance(raised.value, AttemptAborted)
    assert system.ids(name) == []
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    sink.settle()
    assert system.ids(name) == list(range(10))
    sink.close()
