"""What a batch read, told by its tasks: added up only when all of it is told, and never in the way of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from atonce.client.read.ranges import Account, Seam, Wanted, seams
from atonce.connectors.kafka.read import accounts
from atonce.connectors.kafka.read.accounts import ReadAccounts, reported_at_the_end, tell, with_epochs
from atonce.delivery.progress import Plan, Progress
from atonce.errors import DataLossError

PLAN = Plan(query_id="q", batch_id=3, start={"in/0": 10, "in/1": 5}, end={"in/0": 30, "in/1": 5, "in/2": 7})
"""Partition 1 has nothing new, partition 2 is only noted."""
PROGRESS = Progress(
    instance="i", query_id="q", batch_id=3, positions=dict(PLAN.end or {}), epochs={"in/0": 1, "in/1": 4}
)


def account(start: int, end: int, **other: int) -> Account:
    numbers = {"control": 0, "aborted": 0, "missing": 0, "gone": 0, **other}
    epoch = numbers.pop("epoch", 2)
    records = end - start - sum(numbers.values())
    return Account(topic="in", partition=0, start=start, end=end, records=records, epoch=epoch, **numbers)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadAccounts]:
    monkeypatch.setattr(accounts, "_line", accounts._Line())
    made = ReadAccounts()
    yield made
    made.close()


def say(driver: ReadAccounts, *told: Account, secret: str | None = None) -> None:
    options = driver.options({})
    tell(options["atonce.accounts"], options["atonce.accounts.secret"] if secret is None else secret, told)


def test_all_ranges_of_a_batch_add_up(driver: ReadAccounts) -> None:
    say(driver, account(20, 30, control=1, epoch=5))
    say(driver, account(10, 20, aborted=3, missing=2))
    assert driver.summary(PLAN) == {
        "offsets": 20, "records": 14, "control": 1, "aborted": 3, "missing": 2, "gone": 0,
    }  # fmt: skip
    assert driver.completed(PLAN, PROGRESS).epochs == {"in/0": 5, "in/1": 4}


def test_range_that_did_not_tell_leaves_the_batch_without_an_account(driver: ReadAccounts) -> None:
    """A transform with LIMIT, or a report that was lost."""
    say(driver, account(10, 20))
    assert driver.summary(PLAN) is None
    assert driver.completed(PLAN, replace(PROGRESS, epochs={})).epochs == {}


def test_retried_task_tells_again_and_counts_once(driver: ReadAccounts) -> None:
    say(driver, account(10, 30, missing=1))
    say(driver, account(10, 30, missing=1))
    assert (driver.summary(PLAN) or {})["records"] == 19


def test_epoch_that_nobody_knows_is_not_kept(driver: ReadAccounts) -> None:
    say(driver, account(10, 30, missing=20, epoch=-1))
    assert driver.completed(PLAN, replace(PROGRESS, epochs={})).epochs == {}


def test_stranger_is_not_believed(driver: ReadAccounts) -> None:
    say(driver, account(10, 30), secret="guessed")
    assert driver.summary(PLAN) is None


def test_nothing_is_told_of_what_was_not_read_to_its_end(driver: ReadAccounts) -> None:
    options = driver.options({})
    batches = reported_at_the_end(
        iter([1, 2]), [account(10, 30)], options["atonce.accounts"], options["atonce.accounts.secret"]
    )
    assert next(batches) == 1
    assert driver.summary(PLAN) is None
    assert list(batches) == [2]
    assert driver.summary(PLAN) is not None


def test_driver_that_is_not_there_costs_one_task_a_moment_and_the_next_nothing(driver: ReadAccounts) -> None:
    driver.close()
    say(driver, account(10, 30))
    began = time.monotonic()
    for _ in range(100):
        say(driver, account(10, 30))
    assert time.monotonic() - began < 1


def test_only_a_range_that_begins_where_the_ledger_stands_has_its_epoch() -> None:
    wanted = [Wanted("in", 0, 10, 20), Wanted("in", 0, 20, 30), Wanted("in", 1, 5, 6)]
    assert [each.epoch for each in with_epochs(wanted, {"in/0": [10, 4], "in/1": [4, 4]})] == [4, -1, -1]


def piece(start: int, end: int, first: int, last: int | None = None, reach: int | None = None) -> Account:
    """Read in leader epochs `first` to `last`; with `reach`, what is behind has no record and no epoch."""
    last = first if last is None else last
    known = last if reach is None else -1
    return replace(account(start, end, epoch=known), first_epoch=first, last_epoch=last, reach=reach or end)


def test_pieces_of_one_leader_epoch_have_no_seam() -> None:
    assert seams([piece(20, 30, 4), piece(10, 20, 3, 4)], (10, 3)) == []


def test_every_change_of_the_epoch_between_pieces_is_a_seam() -> None:
    """Up may be an ordinary fail-over, down never is; both are for the leader's history to judge."""
    told = [piece(20, 30, 5), piece(10, 20, 3, 4), piece(30, 40, 2)]
    assert seams(told) == [Seam("in", 0, 20, 4, 20, 5), Seam("in", 0, 30, 5, 30, 2)]


def test_the_first_piece_is_chained_to_the_ledger() -> None:
    assert seams([piece(10, 20, 3)], (10, 1)) == [Seam("in", 0, 10, 1, 10, 3)]


def test_piece_without_a_record_is_passed_over_and_a_gap_before_the_seam_is_not_asked_for() -> None:
    told = [piece(10, 20, 3, reach=15), account(20, 30, missing=10, epoch=-1), piece(30, 40, 4)]
    assert seams(told) == [Seam("in", 0, 15, 3, 30, 4)]


def test_two_copies_of_a_task_that_met_two_logs_are_a_seam() -> None:
    assert seams([piece(10, 20, 4), piece(10, 20, 3)]) == [Seam("in", 0, 20, 3, 10, 4)]


class Properties(SimpleNamespace):
    """Of Spark, what `ReadAccounts.reading` needs."""

    @property
    def sparkContext(self) -> Properties:
        return self

    def setLocalProperty(self, name: str, value: str | None) -> None:
        pass


def test_batch_whose_pieces_lie_in_two_logs_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_line", accounts._Line())
    judged: list[Any] = []

    def refuse(found: Any) -> None:
        judged.extend(found)
        raise DataLossError("two logs")

    driver = ReadAccounts(refuse_torn=refuse)
    before = replace(PROGRESS, positions=PLAN.start, epochs={"in/0": 1})
    try:
        with driver.reading(Properties(), before):
            say(driver, piece(10, 20, 1), piece(20, 30, 1))
            assert driver.completed(PLAN, PROGRESS).epochs["in/0"] == 1
            assert judged == []
            say(driver, piece(20, 30, 2))
            with pytest.raises(DataLossError):
                driver.completed(PLAN, PROGRESS)
            assert judged == [Seam("in", 0, 30, 1, 20, 2)]
        with driver.reading(Properties(), before):
            say(driver, piece(5, 10, 0), piece(30, 40, 0))  # left behind by the batch before
            say(driver, piece(10, 30, 2))
            with pytest.raises(DataLossError):
                driver.completed(PLAN, PROGRESS)
        assert judged[1:] == [Seam("in", 0, 10, 1, 10, 2)]
    finally:
        driver.close()
