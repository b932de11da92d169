"""What is remembered (message numbers, deletions) is forgotten by age, and not because a clock jumped."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.connectors.sql.database import Database
from tests.contract.connectors.sql.delivering import opened, rows_of

NUMBERS = {"dedupe": "key", "dedupe_keep": "1h"}
DELETIONS = {"mode": "upsert", "key": "key", "order_by": "offset", "delete": "gone", "deletes_keep": "1h"}


def made_older(database: Database, memory: str, column: str, seconds: int, where: str = "true") -> None:
    older = f"{column} - interval '{seconds} seconds'" if database.kind == "postgres" else f"{column} - {seconds}"
    database.run(f"UPDATE {memory} SET {column} = {older} WHERE {where}")


def deletions(spark: Any, values: str) -> Any:
    return rows_of(spark, values).selectExpr("*", "value = 'gone' AS gone").drop("partition")


def test_old_numbers_are_pruned_by_age(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark, **NUMBERS) as deliver:
        deliver(rows_of(spark, "('m1','x',0,1), ('m2','x',0,2)"), 0)
    made_older(database, f"atonce_seen_{table}", "seen_at", 7200, "number = 'm1'")
    with opened(database, table, spark, **NUMBERS) as deliver:
        deliver(rows_of(spark, "('m3','x',0,3)"), 1)
    assert sorted(database.rows(f"SELECT number FROM atonce_seen_{table}")) == [("m2",), ("m3",)]


def test_numbers_are_not_forgotten_when_the_clock_jumps_while_nobody_runs(
    database: Database, table: str, spark: Any
) -> None:
    """To the next process a clock that is a year ahead looks as if all it remembers were a year old."""
    with opened(database, table, spark, **NUMBERS) as deliver:
        deliver(rows_of(spark, "('m1','x',0,1)"), 0)
    made_older(database, f"atonce_seen_{table}", "seen_at", 365 * 86400)
    with opened(database, table, spark, **NUMBERS) as deliver:
        assert deliver(rows_of(spark, "('m1','again',0,2)"), 1) == 0
        assert deliver(rows_of(spark, "('m1','and again',0,3)"), 2) == 0


def test_numbers_are_not_forgotten_by_many_starts_after_one_long_pause(
    database: Database, table: str, spark: Any
) -> None:
    with opened(database, table, spark, **NUMBERS) as deliver:
        deliver(rows_of(spark, "('m1','x',0,1)"), 0)
    made_older(database, f"atonce_seen_{table}", "seen_at", 365 * 86400)
    for number in range(1, 13):
        with opened(database, table, spark, **NUMBERS) as deliver:
            assert deliver(rows_of(spark, f"('new {number}','x',0,2)"), number) == 1
    with opened(database, table, spark, **NUMBERS) as deliver:
        assert deliver(rows_of(spark, "('m1','again',0,3)"), 13) == 0


def test_numbers_are_not_forgotten_when_the_clock_jumps_under_a_running_pipeline(
    sqlite: Database, table: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has no clock of its own: it is the driver's that jumps."""
    with opened(sqlite, table, spark, **NUMBERS) as deliver:
        deliver(rows_of(spark, "('m1','x',0,1)"), 0)
        ahead = time.time() + 365 * 86400
        monkeypatch.setattr(time, "time", lambda: ahead)
        assert deliver(rows_of(spark, "('m2','x',0,2)"), 1) == 1
        assert deliver(rows_of(spark, "('m1','again',0,3)"), 2) == 0


def test_deletions_are_forgotten_by_age_and_not_by_a_jump(database: Database, table: str, spark: Any) -> None:
    memory = f"atonce_deleted_{table}"
    with opened(database, table, spark, **DELETIONS) as deliver:
        deliver(deletions(spark, "('a','gone',0,5), ('b','gone',0,5)"), 0)
    made_older(database, memory, "deleted_at", 365 * 86400)
    with opened(database, table, spark, **DELETIONS) as deliver:
        assert deliver(deletions(spark, "('a','late',0,4)"), 1) == 0
    made_older(database, memory, "deleted_at", 7200, "key = 'b'")
    with opened(database, table, spark, **DELETIONS) as deliver:
        assert deliver(deletions(spark, "('a','late',0,4), ('b','older than its memory',0,4)"), 2) == 1
    assert database.rows(f"SELECT key FROM {memory}") == [("a",)]
