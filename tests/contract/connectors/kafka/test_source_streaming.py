"""spark.readStream.format("atonce") in a real query: admission, Trigger.AvailableNow, restarts (S3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.contract.client.parts import eventually, fresh_topic
from tests.contract.connectors.kafka.reading import Drain, fill


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
