"""What must hold on every version of Spark. `make matrix` runs this file on each; `make test` on the newest."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Delivered, Event
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.spark.versions import hashed, keys_of, repartitioned, spark_version
from tests.contract.pipeline.parts import consume, produce

UPPER = "SELECT CAST(key AS STRING) AS key, upper(CAST(value AS STRING)) AS value FROM input"
pipelines = pytest.mark.skipif(spark_version() < (4, 0), reason="Spark 3.5 has no Python sources: deliver alone")


class Batches:
    """How many input rows each batch took."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, Delivered):
            self.rows.append(event.rows or 0)


@pytest.fixture
def topic(embedded: str) -> str:
    name = f"in-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=3)
        create_topic(cluster, f"{name}-out", partitions=3)
    return name


def _values(servers: str, topic: str) -> list[str | None]:
    return sorted((value for _, value in consume(servers, topic)), key=str)


def _expected(count: int) -> list[str]:
    return sorted(f"VALUE {i}" for i in range(count))


@pipelines
@pytest.mark.parametrize("level", list(Guarantee))
def test_each_level_delivers_each_record_once_within_its_limit(
    level: Guarantee, embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    produce(embedded, topic, range(300))
    seen = Batches()
    pipeline = (
        atonce.Pipeline(topic, level, checkpoint=str(scratch / "checkpoint"), observer=seen)
        .read(atonce.Kafka(topic, servers=embedded, options={"maxOffsetsPerTrigger": "120"}))
        .transform(UPPER)
        .write(atonce.Kafka(f"{topic}-out", servers=embedded))
    )
    pipeline.run(available_now=True)
    assert _values(embedded, f"{topic}-out") == _expected(300)
    produce(embedded, topic, range(300, 600))
    pipeline.run(available_now=True)
    assert _values(embedded, f"{topic}-out") == _expected(600)
    assert sum(seen.rows) == 600 and max(seen.rows) <= 120 and len(seen.rows) >= 6


@pipelines
def test_a_drain_ends_at_what_was_there_when_it_began(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    """Each batch brings more input than it takes: without an end of its own the run would never be over."""
    produce(embedded, topic, range(200))
    written = [200]

    class Feeds:
        def on_event(self, event: Event) -> None:
            if isinstance(event, Delivered):
                produce(embedded, topic, range(written[0], written[0] + 100))
                written[0] += 100

    pipeline = (
        atonce.Pipeline(topic, "effectively-once", checkpoint=str(scratch / "checkpoint"), observer=Feeds())
        .read(atonce.Kafka(topic, servers=embedded, options={"maxOffsetsPerTrigger": "60"}))
        .transform(UPPER)
        .write(atonce.Kafka(f"{topic}-out", servers=embedded))
    )
    pipeline.run(available_now=True)
    assert _values(embedded, f"{topic}-out") == _expected(200)


@pipelines
def test_functions_in_python_and_large_batches_go_through_the_shuffle(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    from pyspark.sql.functions import udf

    produce(embedded, topic, range(20_000))
    upper = udf(lambda value: value.decode().upper(), "string")
    (
        atonce.Pipeline(topic, "effectively-once", checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka(topic, servers=embedded))
        .transform(lambda df: df.select("key", upper("value").alias("value")))
        .write(atonce.Kafka(f"{topic}-out", servers=embedded))
        .run(available_now=True)
    )
    assert _values(embedded, f"{topic}-out") == _expected(20_000)


@pipelines
def test_state_is_kept_over_restarts(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    pipeline = (
        atonce.Pipeline(topic, "effectively-once", checkpoint=str(scratch / "checkpoint"), mode="update")
        .read(atonce.Kafka(topic, servers=embedded, options={"maxOffsetsPerTrigger": "100"}))
        .transform(
            lambda df: (
                df.groupBy("partition")
                .count()
                .selectExpr("CAST(partition AS STRING) key", "CAST(count AS STRING) value")
            )
        )
        .write(atonce.Kafka(f"{topic}-out", servers=embedded))
    )
    for end in (300, 600):
        produce(embedded, topic, range(end - 300, end))
        pipeline.run(available_now=True)
    last = dict(consume(embedded, f"{topic}-out"))
    counts = {key: max(int(v or 0) for k, v in consume(embedded, f"{topic}-out") if k == key) for key in last}
    assert counts == {"0": 200, "1": 200, "2": 200}


@pipelines
def test_a_table_is_a_source_within_its_limit(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    file = scratch / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT)")
        connection.executemany(
            "INSERT INTO outbox (key, value) VALUES (?, ?)", [(str(i), f"VALUE {i}") for i in range(250)]
        )
    seen = Batches()
    pipeline = (
        atonce.Pipeline(topic, "effectively-once", checkpoint=str(scratch / "checkpoint"), observer=seen)
        .read(atonce.Table(f"sqlite:///{file}", table="outbox", max_rows=100))
        .transform("SELECT key, value FROM input")
        .write(atonce.Kafka(f"{topic}-out", servers=embedded))
    )
    pipeline.run(available_now=True)
    with sqlite3.connect(file) as connection:
        connection.executemany(
            "INSERT INTO outbox (key, value) VALUES (?, ?)", [(str(i), f"VALUE {i}") for i in range(250, 500)]
        )
    pipeline.run(available_now=True)
    assert _values(embedded, f"{topic}-out") == _expected(500)
    assert max(seen.rows) <= 100


@pipelines
def test_files_are_drained_by_spark_itself(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    folder = scratch / "lines"
    folder.mkdir()
    for part in range(3):
        lines = "".join(f"VALUE {i}\n" for i in range(part * 100, part * 100 + 100))
        (folder / f"{part}.txt").write_text(lines)
    (
        atonce.Pipeline(topic, "effectively-once", checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Files(str(folder), format="text", options={"maxFilesPerTrigger": "1"}))
        .write(atonce.SQLite(str(scratch / "out.db"), table="lines"))
        .run(available_now=True)
    )
    with sqlite3.connect(scratch / "out.db") as connection:
        assert sorted(v for (v,) in connection.execute("SELECT value FROM lines")) == _expected(300)


KILLED = """
import os, signal, sys
import atonce
from atonce.delivery.events import Delivered
from atonce.spark.session import session

servers, topic, checkpoint, batches = sys.argv[1:4] + [int(sys.argv[4])]

class Kills:
    def on_event(self, event):
        global batches
        batches -= isinstance(event, Delivered)
        if not batches:
            os.killpg(0, signal.SIGKILL)

session("local[2]")
(
    atonce.Pipeline(topic, "effectively-once", checkpoint=checkpoint, observer=Kills())
    .read(atonce.Kafka(topic, servers=servers, options={"maxOffsetsPerTrigger": "100"}))
    .transform("SELECT CAST(key AS STRING) AS key, upper(CAST(value AS STRING)) AS value FROM input")
    .write(atonce.Kafka(topic + "-out", servers=servers))
    .run(available_now=True)
)
"""


@pipelines
def test_a_driver_killed_after_its_commit_goes_on_exactly(embedded: str, topic: str, scratch: Path) -> None:
    produce(embedded, topic, range(600))
    for batches, code in ((3, -9), (1_000, 0)):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, embedded, topic, str(scratch / "checkpoint"), str(batches)],
            capture_output=True, text=True, timeout=180, start_new_session=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr[-2000:]
    assert _values(embedded, f"{topic}-out") == _expected(600)


def test_deliver_works_under_a_source_of_sparks_own(embedded: str, topic: str, scratch: Path, spark: Any) -> None:
    folder = scratch / "lines"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"VALUE {i}\n" for i in range(300)))
    for sink in (atonce.Kafka(f"{topic}-out", servers=embedded), atonce.SQLite(str(scratch / "o.db"), table="lines")):
        checkpoint = str(scratch / f"checkpoint-{type(sink).__name__}")
        delivery = atonce.deliver(sink, name=f"{topic}-{type(sink).__name__}", guarantee="effectively-once")
        query = (
            spark.readStream.text(str(folder))
            .writeStream.foreachBatch(delivery)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        delivery.close()
    assert _values(embedded, f"{topic}-out") == _expected(300)
    with sqlite3.connect(scratch / "o.db") as connection:
        assert sorted(v for (v,) in connection.execute("SELECT value FROM lines")) == _expected(300)


def test_rows_go_to_the_task_that_they_name(spark: Any) -> None:
    from pyspark.sql import functions as f

    rows = spark.range(1000).select((f.col("id") % 7).cast("int").alias("slot"))
    placed = repartitioned(rows, 7, "slot").withColumn("task", f.spark_partition_id()).distinct().collect()
    assert sorted((row.slot, row.task) for row in placed) == [(n, n) for n in range(7)]


def test_keys_are_hashed_as_spark_hashes_them(spark: Any) -> None:
    rows = spark.range(-500, 500).selectExpr("CAST(id AS INT) AS id", "hash(CAST(id AS INT)) AS hashed").collect()
    assert [hashed(row.id) for row in rows] == [row.hashed for row in rows]
    assert [hashed(key) % 13 for key in keys_of(13)] == list(range(13))


@pytest.mark.skipif(spark_version() >= (4, 0), reason="of Spark 3.5 alone")
def test_a_pipeline_on_spark_3_5_is_told_what_works_there(embedded: str, topic: str, spark: Any) -> None:
    pipeline = (
        atonce.Pipeline(topic)
        .read(atonce.Kafka(topic, servers=embedded))
        .write(atonce.Kafka(f"{topic}-out", servers=embedded))
    )
    with pytest.raises(UsageError, match=r"needs Spark 4\.0 or newer.*atonce\.deliver"):
        pipeline.run(available_now=True)
