"""Two pipelines into one table: what is exact together, and what is refused in the transaction that would double it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from atonce.delivery.contract import Batch, Identity
from atonce.delivery.progress import Plan, Progress
from atonce.errors import RefusedError, RetriableError
from tests.contract.connectors.sql.database import Database, identity
from tests.contract.connectors.sql.delivering import opened, rows_of

RECORDS = 60
LIVE, BACKFILL = (20, RECORDS), (0, 40)
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))]
OPTIONS: dict[str, dict[str, Any]] = {
    "upsert": {"mode": "upsert", "key": "key", "order_by": "id"},
    "dedupe": {"dedupe": "id"},
}


def records(spark: Any, first: int, end: int, seed: int) -> Any:
    """Offset i is record i; seven keys, so that every batch of both changes most of them."""
    return spark.range(first, end, 1, 2).selectExpr("id", f"cast(pmod(hash(id, {seed}), 7) AS int) AS key")


def run(sink: Any, who: Identity, spark: Any, span: tuple[int, int], seed: int, together: threading.Barrier) -> None:
    """As the engine does it: one batch after the other, and an aborted attempt again."""
    cuts = random.Random(f"{who.name} {seed}")
    recorded = sink.claim()
    assert recorded is None
    at, number = span[0], 0
    together.wait(60)
    while at < span[1]:
        end = min(span[1], at + cuts.randint(5, 15))
        plan = Plan(query_id="q", batch_id=number, start={"t/0": at}, end={"t/0": end})
        progress = Progress(
            instance=who.instance, query_id="q", batch_id=number, positions={"t/0": end}, sequence=number + 1
        )
        batch = Batch(df=records(spark, at, end, seed), plan=plan)
        for left in reversed(range(20)):
            try:
                sink.output_and_progress(batch, progress)
                break
            except RetriableError:
                assert left
        at, number = end, number + 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("manner", OPTIONS)
def test_both_at_once_over_one_overlapping_range_leave_what_one_alone_would(
    database: Database, table: str, spark: Any, manner: str, seed: int
) -> None:
    sink = database.sink(table, **OPTIONS[manner])
    together = threading.Barrier(2)
    failures: list[BaseException] = []

    def deliver(name: str, span: tuple[int, int]) -> None:
        who = identity(name)
        opened = sink.open(who, spark)
        try:
            run(opened, who, spark, span, seed, together)
        except BaseException as error:
            failures.append(error)
            together.abort()
        finally:
            opened.close()

    threads = [
        threading.Thread(target=deliver, args=(f"{table}-{name}", span))
        for name, span in (("live", LIVE), ("backfill", BACKFILL))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    if manner == "dedupe":
        assert database.ids(table) == list(range(RECORDS))
        return
    newest = {row["key"]: row["id"] for row in records(spark, 0, RECORDS, seed).groupBy("key").agg({"id": "max"}).toDF("key", "id").collect()}  # fmt: skip
    assert dict(database.rows(f"SELECT key, id FROM {table}")) == newest


def beside(database: Database, table: str, spark: Any) -> tuple[Any, Callable[[int, int], Any]]:
    """A backfill beside a live pipeline that began at 30, into a table that appends."""
    live = identity(f"{table}-live")
    first = database.sink(table).open(live, spark)
    first.claim()
    first.progress(
        Progress(instance=live.instance, query_id="", batch_id=-1, positions={"t/0": 30}, sequence=1, first={"t/0": 30})
    )
    first.close()
    who = replace(identity(f"{table}-backfill"), below=live.name)
    sink = database.sink(table).open(who, spark)
    sink.claim()

    def deliver(start: int, end: int) -> Any:
        plan = Plan(query_id="q", batch_id=start, start={"t/0": start}, end={"t/0": end})
        progress = Progress(
            instance=who.instance, query_id="q", batch_id=start, positions={"t/0": end}, sequence=start + 1
        )
        return sink.output_and_progress(Batch(df=records(spark, start, end, 0), plan=plan), progress)

    return sink, deliver


def test_appended_rows_end_where_the_live_pipeline_began(database: Database, table: str, spark: Any) -> None:
    sink, deliver = beside(database, table, spark)
    try:
        deliver(0, 30)
        with pytest.raises(RefusedError, match="t/0: it began at 30, and this ends at 31"):
            deliver(30, 31)
    finally:
        sink.close()
    assert database.ids(table) == list(range(30))
    assert database.ledger(f"{table}-backfill")[1] == '{"t/0": 30}'


def test_a_live_pipeline_that_was_set_back_meanwhile_is_noticed_in_the_transaction(
    database: Database, table: str, spark: Any
) -> None:
    sink, deliver = beside(database, table, spark)
    try:
        deliver(0, 10)
        details = database.rows(f"SELECT details FROM atonce_ledger WHERE name = '{table}-live'")[0][0]
        lower = details.replace('"first":{"t/0":30}', '"first":{"t/0":10}')
        assert lower != details
        database.run(f"UPDATE atonce_ledger SET details = '{lower}' WHERE name = '{table}-live'")
        with pytest.raises(RefusedError, match="t/0: it began at 10, and this ends at 20"):
            deliver(10, 20)
    finally:
        sink.close()
    assert database.ids(table) == list(range(10))


def test_a_ledger_that_does_not_say_where_it_began_refuses_all_of_it(
    database: Database, table: str, spark: Any
) -> None:
    sink, deliver = beside(database, table, spark)
    try:
        database.run(f"UPDATE atonce_ledger SET details = '{{}}' WHERE name = '{table}-live'")
        with pytest.raises(RefusedError, match="does not say where it began"):
            deliver(0, 10)
    finally:
        sink.close()


OLD_NUMBERS = {
    "postgres": "pipeline text NOT NULL, number text NOT NULL, seen_at timestamptz NOT NULL",
    "sqlite": "pipeline TEXT NOT NULL, number TEXT NOT NULL, seen_at REAL NOT NULL",
    "duckdb": "pipeline VARCHAR NOT NULL, number VARCHAR NOT NULL, seen_at DOUBLE NOT NULL",
}


def older_numbers(database: Database, table: str, *pairs: tuple[str, str]) -> str:
    """As versions kept them that had them for each pipeline."""
    memory = f"atonce_seen_{table}"
    now = "now()" if database.kind == "postgres" else "1.0"
    database.run(f"CREATE TABLE {memory} ({OLD_NUMBERS[database.kind]}, PRIMARY KEY (pipeline, number))")
    for pipeline, number in pairs:
        database.run(f"INSERT INTO {memory} VALUES ('{pipeline}', '{number}', {now})")
    return memory


def test_numbers_that_were_kept_for_each_pipeline_become_the_table_s_own(
    database: Database, table: str, spark: Any
) -> None:
    memory = older_numbers(database, table, (table, "m1"), ("another", "m2"))
    with opened(database, table, spark, dedupe="key") as deliver:
        assert deliver(rows_of(spark, "('m1','again',0,1), ('m2','again',0,2), ('m3','new',0,3)"), 0) == 1
        assert deliver(rows_of(spark, "('m3','again',0,4), ('m4','new',0,5)"), 1) == 1
    assert sorted(database.rows(f"SELECT number FROM {memory}")) == [("m1",), ("m2",), ("m3",), ("m4",)]
    assert "pipeline" not in database.columns(memory)


def test_a_number_that_two_pipelines_took_is_not_taken_for_one_message(
    database: Database, table: str, spark: Any
) -> None:
    memory = older_numbers(database, table, ("one", "m1"), ("two", "m1"))
    with (
        opened(database, table, spark, dedupe="key") as deliver,
        pytest.raises(RefusedError, match="holds number m1 of 'one' and of 'two'"),
    ):
        deliver(rows_of(spark, "('m2','new',0,1)"), 0)
    assert len(database.rows(f"SELECT pipeline FROM {memory}")) == 2
