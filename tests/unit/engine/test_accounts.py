"""What a batch read, told by its tasks: added up only when all of it is told, and never in the way of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from atonce.client.ranges import Account, Wanted
from atonce.connectors.kafka.read import accounts
from atonce.connectors.kafka.read.accounts import Accounts, tell, told_at_the_end, with_epochs
from atonce.delivery.progress import Plan, Progress

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
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Accounts]:
    monkeypatch.setattr(accounts, "_line", accounts._Line())
    made = Accounts()
    yield made
    made.close()


def say(driver: Accounts, *told: Account, secret: str | None = None) -> None:
    options = driver.options()
    tell(options["atonce.accounts"], options["atonce.accounts.secret"] if secret is None else secret, told)


def test_all_ranges_of_a_batch_add_up(driver: Accounts) -> None:
    say(driver, account(20, 30, control=1, epoch=5))
    say(driver, account(10, 20, aborted=3, missing=2))
    assert driver.summary(PLAN) == {
        "offsets": 20, "records": 14, "control": 1, "aborted": 3, "missing": 2, "gone": 0,
    }  # fmt: skip
    assert driver.completed(PLAN, PROGRESS).epochs == {"in/0": 5, "in/1": 4}


def test_range_that_did_not_tell_leaves_the_batch_without_an_account(driver: Accounts) -> None:
    """A transform with LIMIT, or a report that was lost."""
    say(driver, account(10, 20))
    assert driver.summary(PLAN) is None
    assert driver.completed(PLAN, replace(PROGRESS, epochs={})).epochs == {}


def test_retried_task_tells_again_and_counts_once(driver: Accounts) -> None:
    say(driver, account(10, 30, missing=1))
    say(driver, account(10, 30, missing=1))
    assert (driver.summary(PLAN) or {})["records"] == 19


def test_epoch_that_nobody_knows_is_not_kept(driver: Accounts) -> None:
    say(driver, account(10, 30, missing=20, epoch=-1))
    assert driver.completed(PLAN, replace(PROGRESS, epochs={})).epochs == {}


def test_stranger_is_not_believed(driver: Accounts) -> None:
    say(driver, account(10, 30), secret="guessed")
    assert driver.summary(PLAN) is None


def test_nothing_is_told_of_what_was_not_read_to_its_end(driver: Accounts) -> None:
    options = driver.options()
    batches = told_at_the_end(
        iter([1, 2]), [account(10, 30)], options["atonce.accounts"], options["atonce.accounts.secret"]
    )
    assert next(batches) == 1
    assert driver.summary(PLAN) is None
    assert list(batches) == [2]
    assert driver.summary(PLAN) is not None


def test_driver_that_is_not_there_costs_one_task_a_moment_and_the_next_nothing(driver: Accounts) -> None:
    driver.close()
    say(driver, account(10, 30))
    began = time.monotonic()
    for _ in range(100):
        say(driver, account(10, 30))
    assert time.monotonic() - began < 1


def test_only_a_range_that_begins_where_the_ledger_stands_has_its_epoch() -> None:
    wanted = [Wanted("in", 0, 10, 20), Wanted("in", 0, 20, 30), Wanted("in", 1, 5, 6)]
    assert [each.epoch for each in with_epochs(wanted, {"in/0": [10, 4], "in/1": [4, 4]})] == [4, -1, -1]
