"""spark.readStream.format("atonce"): admission, Trigger.AvailableNow, restarts, new partitions, loss (S3, F30)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPlace
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException
from tests.contract.client.parts import admin, eventually, fresh_topic
from tests.contract.source.parts import Drain, fill


def expected(numbers: range) -> list[str]:
    return [f"v{n}" for n in numbers]


def test_a_drain_takes_what_is_there_in_limited_batches_and_a_restart_goes_on(
    spark: Any, kafka_servers: str, scratch: Path
) -> None:
    topic = fresh_topic(kafka_servers, 2)
    fill(kafka_servers, topic, range(60), 0)
    fill(kafka_servers, topic, range(60, 80), 1)
    drain = Drain(spark, kafka_servers, scratch, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="32")
    assert [len(found) for found in drain.run()] == [32, 32, 16]
    assert sorted(drain.values) == sorted(expected(range(80)))
    assert drain.run() == []
    fill(kafka_servers, topic, range(80, 90), 1)
    assert sorted(value for found in drain.run() for value in found) == expected(range(80, 90))
    line = (scratch / "offsets" / "3").read_text().splitlines()[2]
    assert json.loads(line) == {topic: {"0": 60, "1": 30}}


def test_new_partitions_are_read_from_their_beginning(spark: Any, embedded: str, scratch: Path) -> None:
    topic = fresh_topic(embedded, 1)
    fill(embedded, topic, range(10))
    drain = Drain(spark, embedded, scratch, subscribePattern=topic, startingOffsets="earliest")
    drain.run()
    next(iter(admin(embedded).create_partitions([NewPartitions(topic, 3)]).values())).result(20)
    fill(embedded, topic, range(10, 20), 2)
    drain.run()
    assert sorted(drain.values) == expected(range(10, 20))


def test_latest_is_where_a_new_query_begins_by_default(spark: Any, embedded: str, scratch: Path) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(10))
    drain = Drain(spark, embedded, scratch, subscribe=topic)
    query = drain.start(processingTime="0 seconds")
    try:
        eventually(lambda: (scratch / "offsets" / "0").exists() or query.lastProgress is not None, 60)
        fill(embedded, topic, range(10, 20))
        eventually(lambda: len(drain.values) >= 10, 60)
    finally:
        query.stop()
    assert drain.values == expected(range(10, 20))


def test_bytes_limit_a_batch(spark: Any, embedded: str, scratch: Path) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(3000))
    drain = Drain(spark, embedded, scratch, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="24k")
    sizes = [len(found) for found in drain.run()]
    assert sum(sizes) == 3000 and 2 <= len(sizes) <= 12
    assert max(sizes) * 12 < 40_000


def test_removed_input_stops_the_query_and_says_what_is_missing(spark: Any, embedded: str, scratch: Path) -> None:
    topic = fresh_topic(embedded)
    fill(embedded, topic, range(20))
    drain = Drain(spark, embedded, scratch, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    drain.run()
    fill(embedded, topic, range(20, 40))
    next(iter(admin(embedded).delete_records([ConfluentPlace(topic, 0, 35)]).values())).result(20)
    with pytest.raises(StreamingQueryException, match=r"offsets 20 to 29 are wanted, but only 35 to 39 are there"):
        drain.run()
    patient = Drain(spark, embedded, scratch, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    patient.run()
    assert patient.values == expected(range(35, 40))
