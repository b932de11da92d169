"""Pipelines inside a Python program: started and held, several in one session, and nothing left of those refused."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Event, Step
from atonce.errors import RetriableError, UsageError
from tests.contract.pipeline.parts import Watcher, consume, produce


def made(servers: str, scratch: Path, partitions: int = 1, **options: Any) -> atonce.Pipeline:
    """A copy of a topic that holds five records; the output topic is not there yet."""
    name = f"program-{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, name, partitions=partitions)
    produce(servers, name, range(5), partitions=partitions)
    return (
        atonce.Pipeline(name, checkpoint=str(scratch / name), **options)
        .read(atonce.Kafka(name, servers=servers))
        .transform("SELECT key, CAST(value AS STRING) AS value FROM input")
        .write(atonce.Kafka(f"{name}-out", servers=servers))
    )


def topics(servers: str) -> set[str]:
    with Cluster(servers) as cluster:
        return set(cluster.topics())


def test_a_started_pipeline_is_held_by_one_handle_while_its_query_starts_again(
    embedded: str, scratch: Path, spark: Any
) -> None:
    def trouble(_: Event) -> None:
        raise RetriableError("the connection was lost")

    watcher = Watcher(Step.DELIVERED, trouble)
    pipeline = made(embedded, scratch, observer=watcher)
    started = pipeline.start()
    first = started.query
    assert first.name == pipeline.name and started.status in ("running", "waiting")
    while not (started.progress.restarts and started.query is not first):
        assert not started.wait(0.2), "it goes on by itself"
    produce(embedded, pipeline.name, range(5, 9), partitions=1)
    while len(consume(embedded, f"{pipeline.name}-out")) < 9:
        assert not started.wait(0.2)
    started.stop()
    assert started.wait(60) and started.status == "stopped" and started.exception() is None
    assert not started.query.isActive
    again = pipeline.start(available_now=True)
    assert again.wait(60) and again.progress.rows == 0
    assert len(consume(embedded, f"{pipeline.name}-out")) == 9


def test_an_error_reaches_whoever_waits_in_the_words_of_run(embedded: str, scratch: Path, spark: Any) -> None:
    pipeline = made(embedded, scratch)
    failing = replace(
        pipeline, transforms=("SELECT key, CAST(raise_error('no such city') AS STRING) AS value FROM input",)
    )
    started = failing.start(available_now=True)
    with pytest.raises(
        Exception, match=rf"a batch of '{pipeline.name}' failed: .*no such city.*\. Nothing of it"
    ) as told:
        started.wait(60)
    assert started.exception() is told.value and started.status == "failed"


def test_several_pipelines_share_a_session_and_one_that_fails_is_not_the_end_of_the_others(
    embedded: str, scratch: Path, spark: Any
) -> None:
    one, two, bad = (made(embedded, scratch) for _ in range(3))
    bad = replace(bad, transforms=("SELECT key, no_such_column AS value FROM input",))
    said: list[str] = []
    with pytest.raises(UsageError, match="no_such_column"):
        atonce.run(replace(bad, say=said.append), one, two, available_now=True)
    assert any("no_such_column" in line for line in said)
    for each in (one, two):
        assert len(consume(embedded, f"{each.name}-out")) == 5


@pytest.mark.parametrize("wrong", ["columns", "transform"])
def test_a_refused_run_leaves_no_topic_and_does_not_fence_the_one_that_runs(
    embedded: str, scratch: Path, spark: Any, wrong: str
) -> None:
    pipeline = made(embedded, scratch)
    sql = "SELECT key, 1.5 AS value FROM input" if wrong == "columns" else "SELECT nothing FROM input"
    bad = replace(pipeline, transforms=(sql,), checkpoint=str(scratch / "bad"))
    with pytest.raises(UsageError):
        bad.run(available_now=True)
    assert f"{pipeline.name}-out" not in topics(embedded)
    assert not (scratch / "bad").exists()
    running = pipeline.start()
    with pytest.raises(UsageError):
        bad.run(available_now=True)
    produce(embedded, pipeline.name, range(5, 7), partitions=1)
    while len(consume(embedded, f"{pipeline.name}-out")) < 7:
        assert not running.wait(0.2)
    running.stop()
    assert running.wait(60) and running.exception() is None


def test_a_refused_run_leaves_no_database_file_and_no_row_in_its_ledger(
    embedded: str, scratch: Path, spark: Any
) -> None:
    file = scratch / "shop.db"
    pipeline = replace(made(embedded, scratch), transforms=("SELECT key, CAST(value AS STRING) AS value FROM input",))
    upsert = replace(pipeline, sink=atonce.SQLite(str(file), table="orders", mode="upsert", key="no_such_column"))
    with pytest.raises(UsageError, match="no_such_column"):
        upsert.run(available_now=True)
    assert not list(scratch.glob("shop.db*"))
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE orders (id INTEGER, total REAL)")
    with pytest.raises(UsageError, match="orders"):
        replace(pipeline, sink=atonce.SQLite(str(file), table="orders")).run(available_now=True)
    with sqlite3.connect(file) as db:
        assert [name for (name,) in db.execute("SELECT name FROM sqlite_master")] == ["orders"]


@pytest.mark.parametrize("kind", ["duckdb", "delta", "iceberg"])
def test_a_refused_run_leaves_no_file_and_no_table_of_files_behind(
    embedded: str, scratch: Path, spark: Any, kind: str
) -> None:
    """Columns are compared before DuckDB, which makes its file by looking at it, or a table's log is touched."""
    place = scratch / "shop"
    sinks = {
        "duckdb": atonce.DuckDB(place, table="orders", mode="upsert", key="no_such_column"),
        "delta": atonce.Delta(place, partition_by="no_such_column"),
        "iceberg": atonce.Iceberg(
            "shop.orders",
            {"type": "sql", "uri": f"sqlite:///{place}.db", "warehouse": str(place)},
            partition_by="day(no_such_column)",
        ),
    }
    pipeline = replace(made(embedded, scratch), transforms=("SELECT key, CAST(value AS STRING) AS value FROM input",))
    with pytest.raises(UsageError, match="no_such_column"):
        replace(pipeline, sink=sinks[kind]).run(available_now=True)
    assert not list(scratch.glob("shop*"))
    assert not (scratch / pipeline.name).exists(), "nor a checkpoint"


def test_a_session_of_ours_takes_settings_and_refuses_what_is_none(spark: Any) -> None:
    assert atonce.session(**{"spark.sql.shuffle.partitions": 3}).conf.get("spark.sql.shuffle.partitions") == "3"
    with pytest.raises(UsageError, match=r"'memory', which is no setting of Spark's"):
        atonce.session(memory="4g")
