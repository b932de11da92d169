"""Which upserts need an order: `explain`, the start and each batch ask one function, and give one answer."""

from __future__ import annotations

import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.connectors.kafka.read.stream import source_schema
from atonce.errors import UsageError
from atonce.spark.planning.pruning import unstarted
from atonce.spark.planning.row_order import of_stream

BEGAN_MS = int(time.time()) // 60 * 60_000
"""All in one window, and young enough for the topic's retention."""
MINUTE = "window(timestamp, '1 minute')"
SPLIT = "split(CAST(value AS STRING), ',')"
CHANGES = (
    f"SELECT CAST(key AS STRING) AS id, {SPLIT}[0] AS body, CAST({SPLIT}[1] AS INT) AS at, {SPLIT}[2] = 'gone' AS gone "
    "FROM input"
)


@pytest.mark.parametrize(
    ("sql", "keys", "kind"),
    [
        ("SELECT key AS id, value FROM input WHERE value IS NOT NULL", "id", "kept"),
        ("SELECT key AS id, explode(split(CAST(value AS STRING), ',')) AS part FROM input", "id", "kept"),
        ("SELECT key AS id, count(*) AS n FROM input GROUP BY key", "id", "once"),
        ("SELECT upper(CAST(key AS STRING)) AS id, count(*) AS n FROM input GROUP BY 1 HAVING n > 1", "id", "once"),
        ("WITH c AS (SELECT key AS id, count(*) n FROM input GROUP BY key) SELECT n + 1 AS n, id FROM c", "id", "once"),
        (f"SELECT {MINUTE}.start AS begun, key, count(*) AS n FROM input GROUP BY {MINUTE}, key", "begun,key", "once"),
        (f"SELECT {MINUTE}.start AS begun, count(*) AS n FROM input GROUP BY {MINUTE}", "begun", "once"),
        ("SELECT CAST(key AS STRING) AS id, count(*) AS n FROM input GROUP BY key", "id", "once"),
        ("SELECT CAST(partition AS BIGINT) AS id, count(*) AS n FROM input GROUP BY partition", "id", "once"),
        ("SELECT CAST(offset AS INT) AS id, count(*) AS n FROM input GROUP BY offset", "id", "lost"),
        ("SELECT count(*) AS n, 1 AS id FROM input", "id", "once"),
        ("SELECT DISTINCT key AS id FROM input", "id", "once"),
        ("SELECT key AS id, topic, count(*) AS n FROM input GROUP BY key, topic", "id", "lost"),
        ("SELECT substring(k, 0, 1) AS id, n FROM (SELECT CAST(key AS STRING) k, count(*) n FROM input GROUP BY 1)", "id",
         "lost"),
        (f"SELECT key AS id, count(*) AS n FROM input GROUP BY {MINUTE}, key", "id", "lost"),
        ("SELECT id, explode(array(1, 2)) AS x FROM (SELECT key AS id, count(*) FROM input GROUP BY key)", "id", "lost"),
        ("SELECT /*+ REPARTITION(3) */ key AS id, value FROM input", "id", "lost"),
    ],
)  # fmt: skip
def test_a_plan_says_whether_a_key_comes_once_a_batch(spark: Any, sql: str, keys: str, kind: str) -> None:
    unstarted(spark, source_schema(False)).createOrReplaceTempView("input")
    assert of_stream(spark.sql(sql), keys.split(",")).kind == kind


def test_rows_without_duplicates_of_the_key_need_no_order(spark: Any) -> None:
    rows = unstarted(spark, source_schema(False))
    assert of_stream(rows.dropDuplicates(["key"]), ["key"]).kind == "once"
    assert of_stream(rows.dropDuplicates(["key"]), ["topic", "key"]).kind == "once"
    assert of_stream(rows.dropDuplicates(["topic", "key"]), ["key"]).kind == "lost"


@pytest.fixture
def topic(embedded: str) -> str:
    name = f"order-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
    return name


def produce(servers: str, topic: str, records: list[tuple[str, str, int]]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value, partition in records:
        producer.produce(topic, key=key, value=value, partition=partition, timestamp=BEGAN_MS)
    assert producer.flush(30) == 0


def counting(servers: str, topic: str, scratch: Path, sql: str, key: Any, mode: str | None) -> atonce.Pipeline:
    sink = atonce.SQLite(scratch / "out.db", table="counts", mode="upsert", key=key)
    return (
        atonce.Pipeline(topic, checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka(topic, servers=servers))
        .transform(sql)
        .write(sink, mode=mode)
    )


@pytest.mark.parametrize("mode", [None, "complete"])
def test_a_windowed_aggregation_upserted_by_its_group_is_explained_and_runs(
    embedded: str, topic: str, scratch: Path, spark: Any, mode: str | None
) -> None:
    sql = f"SELECT {MINUTE}.start AS begun, CAST(key AS STRING) AS id, count(*) AS n FROM input GROUP BY {MINUTE}, key"
    pipeline = counting(embedded, topic, scratch, sql, ["begun", "id"], mode)
    words = pipeline.explain()
    assert "verdict     given" in words
    assert "a key comes at most once a batch" in words
    for _ in range(2):
        produce(embedded, topic, [("a", "1", 0), ("b", "1", 1), ("a", "1", 0)])
        pipeline.run(available_now=True)
    with sqlite3.connect(scratch / "out.db") as db:
        assert sorted(db.execute("SELECT id, n FROM counts")) == [("a", 4), ("b", 2)]


def test_what_explain_refuses_run_refuses_with_the_same_words(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    sql = "SELECT CAST(key AS STRING) AS id, topic, count(*) AS n FROM input GROUP BY key, topic"
    pipeline = counting(embedded, topic, scratch, sql, "id", None)
    why = "the transform shuffles rows (Aggregate), so their order in the input is lost"
    assert "verdict     refused: upsert into SQLite table counts needs to know" in pipeline.explain()
    assert why in pipeline.explain()
    with pytest.raises(UsageError) as refused:
        pipeline.run(available_now=True)
    assert why in str(refused.value)


def test_explain_says_that_a_key_must_come_from_one_partition(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    words = counting(embedded, topic, scratch, "SELECT key AS id, value FROM input", "id", None).explain()
    assert "all rows of a key must come from one input partition" in words


def test_deliver_upserts_an_aggregation_by_its_group_too(spark: Any, scratch: Path) -> None:
    """Inside foreachBatch the query's plan is no longer part of the DataFrame; it is asked of the query."""
    (scratch / "in").mkdir()
    (scratch / "in" / "a.csv").write_text("a,1\nb,2\na,3\n")
    rows = spark.readStream.schema("id string, n int").csv(str(scratch / "in"))
    sink = atonce.SQLite(scratch / "out.db", table="sums", mode="upsert", key="id")
    query = (
        rows.groupBy("id").sum("n").toDF("id", "total").writeStream.outputMode("update")
        .foreachBatch(atonce.deliver(sink, name="sums"))
        .option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    with sqlite3.connect(scratch / "out.db") as db:
        assert sorted(db.execute("SELECT id, total FROM sums")) == [("a", 4), ("b", 2)]


def rows_in(kind: str, scratch: Path, url: str, table: str) -> list[Any]:
    query = f"SELECT id, body, at FROM {table} ORDER BY id"
    if kind == "sqlite":
        with sqlite3.connect(scratch / f"{table}.db") as db:
            return db.execute(query).fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def only_changes(batch: Any) -> Any:
    """CHANGES as a function on record batches."""
    import pyarrow as pa

    parts = [value.as_py().decode().split(",") for value in batch.column("value")]
    return pa.RecordBatch.from_pydict(
        {
            "id": [key.as_py().decode() for key in batch.column("key")],
            "body": [part[0] or None for part in parts],
            "at": pa.array([int(part[1]) for part in parts], pa.int32()),
            "gone": [part[2] == "gone" for part in parts],
        }
    )


@pytest.mark.parametrize("way", ["sqlite", "postgres", "postgres by map_arrow"])
def test_one_table_from_end_to_end_whatever_the_cuts(
    embedded: str, topic: str, scratch: Path, spark: Any, postgres_url: str, way: str
) -> None:
    """Two partitions whose records belong together by their order alone, cut into 1, 3 and 8 records a partition."""
    records = [
        *[("a", "a1,1,", 0), ("b", "b4,4,", 0), ("a", ",3,gone", 0), ("c", "c2,2,", 0), ("d", ",9,gone", 0)],
        *[("a", "a2,2,", 1), ("b", ",5,gone", 1), ("d", "d8,8,", 1), ("b", "b6,6,", 1), ("c", "c1,1,", 1)],
    ]
    produce(embedded, topic, records)
    found = []
    for size in ("2", "6", "100"):
        table = f"t_{uuid.uuid4().hex[:12]}"
        options: dict[str, Any] = {"mode": "upsert", "key": "id", "order_by": "at", "delete": "gone", "create": True}
        sink: Any = atonce.Postgres(postgres_url, table=table, **options)
        if way == "sqlite":
            sink = atonce.SQLite(scratch / f"{table}.db", table=table, **options)
        pipeline = atonce.Pipeline(f"{topic}-{size}", checkpoint=str(scratch / table)).read(
            atonce.Kafka(topic, servers=embedded, options={"maxOffsetsPerTrigger": size})
        )
        if way == "postgres by map_arrow":
            pipeline = pipeline.map_arrow(only_changes, "id string, body string, at int, gone boolean")
        else:
            pipeline = pipeline.transform(CHANGES)
        pipeline.write(sink).run(available_now=True)
        found.append(rows_in("sqlite" if way == "sqlite" else "postgres", scratch, postgres_url, table))
    assert found == [[("b", "b6", 6), ("c", "c2", 2)]] * 3
