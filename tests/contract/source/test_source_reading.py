"""spark.read.format("atonce"): ranges, columns, errors, and a function inside the tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException
from tests.contract.client.parts import fresh_topic
from tests.contract.source.parts import batch, fill

from atonce.engine.source import fused

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


def test_an_empty_topic_gives_no_rows(spark: Any, embedded: str) -> None:
    assert batch(spark, embedded, subscribe=fresh_topic(embedded)).count() == 0


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "no-such-topic-here"}, "topic 'no-such-topic-here' does not exist"),
        ({"subscribe": "t", "startingOffset": "earliest"}, 'Did you mean "startingOffsets"'),
        ({"assign": '{"t":0}'}, "is not JSON of the form"),
    ],
)
def test_a_wrong_option_is_named(spark: Any, embedded: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisException) as raised:
        batch(spark, embedded, **options).count()
    assert words in str(raised.value)


def test_a_partition_that_is_not_there_is_named(spark: Any, embedded: str) -> None:
    topic = fresh_topic(embedded)
    with pytest.raises(AnalysisException, match="has partitions 0 to 0"):
        batch(spark, embedded, assign=f'{{"{topic}":[3]}}').count()


def test_a_timestamp_that_no_record_has_is_refused_or_means_the_end(spark: Any, embedded: str) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    late = {"subscribe": topic, "startingTimestamp": "9999999999999"}
    with pytest.raises(AnalysisException, match="no record is as young as the starting timestamp"):
        batch(spark, embedded, **late).count()
    assert batch(spark, embedded, **late, startingOffsetsByTimestampStrategy="latest").count() == 0
    assert batch(spark, embedded, subscribe=topic, startingTimestamp="1000").count() == 10
