"""spark.read.format("atonce"): ranges, columns, errors, and a function inside the tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException

from atonce.connectors.kafka.read.stream import fused
from tests.contract.client.parts import fresh_topic
from tests.contract.connectors.kafka.reading import batch, fill

# Not a fixed date: retention would remove what is older than a week.
NOW_MS = time.time_ns() // 1_000_000_000 * 1000
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_all_columns_of_sparks_connector_with_headers(spark: Any, kafka_servers: str) -> None:
    topic = fresh_topic(kafka_servers, 2)
    producer = Producer({"bootstrap.servers": kafka_servers})
    for n in range(20):
        producer.produce(
            topic,
            f"v{n}",
            None if n % 5 == 0 else f"k{n}",
            n % 2,
            headers=[("h", b"x")],
            timestamp=NOW_MS + n,
        )
    producer.flush()
    df = batch(spark, kafka_servers, subscribe=topic, includeHeaders="true")
    assert df.columns == [*COLUMNS, "headers"]
    rows = sorted(df.collect(), key=lambda row: row.value)
    assert len(rows) == 20 and {row.partition for row in rows} == {0, 1}
    first = next(row for row in rows if bytes(row.value) == b"v0")
    assert (first.key, first.topic, first.offset, first.timestampType) == (None, topic, 0, 0)
    assert [(h.key, bytes(h.value)) for h in first.headers] == [("h", b"x")]
    assert first.timestamp.replace(tzinfo=UTC).timestamp() * 1000 == NOW_MS


def test_offsets_choose_what_is_read_and_tasks_divide_it(spark: Any, embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(100))
    options = {"startingOffsets": f'{{"{topic}":{{"0":10}}}}', "endingOffsets": f'{{"{topic}":{{"0":70}}}}'}
    df = batch(spark, embedded, subscribePattern=topic[:-1] + ".", minPartitions="4", **options)
    assert df.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in df.select("offset").collect()) == list(range(10, 70))


def test_a_function_runs_inside_the_tasks_with_its_own_schema(spark: Any, embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(50))

    def lengths(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for found in batches:
            size = pc.binary_length(found.column("value"))
            yield pa.RecordBatch.from_arrays([found.column("offset"), size], names=["at", "size"])

    df = batch(spark, embedded, subscribe=topic, **fused(lengths, "at bigint, size int"))
    assert df.columns == ["at", "size"]
    assert sorted((row.at, row.size) for row in df.collect()) == [(n, len(f"v{n}")) for n in range(50)]


def test_a_wrong_option_is_named_when_spark_loads_it(spark: Any, embedded: str) -> None:
    with pytest.raises(AnalysisException, match='Did you mean "startingOffsets"'):
        batch(spark, embedded, subscribe="t", startingOffset="earliest")
