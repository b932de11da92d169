"""Pipelines whose SQL runs on columns, and what happens at the first value that needs Spark's JVM."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery import progress
from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from tests.contract.pipeline.parts import OUTPUTS, Watcher

PARTITIONS = 2


def produce(servers: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, key=str(number), value=value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("sink", ["kafka", "postgres"])
def test_text_beyond_ascii_goes_on_in_spark_and_nothing_is_lost_or_doubled(
    sink: str, small: bool, kafka_servers: str, scratch: Path, spark: Any, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """S7: what the columns had sent of that batch was never committed; Java and Python know of different letters."""
    if not small:
        monkeypatch.setattr(progress, "SMALL_BATCH_ROWS", 0)
    name = f"letters-{uuid.uuid4().hex[:8]}"
    with Cluster(kafka_servers) as cluster:
        create_topic(cluster, name, partitions=PARTITIONS)
    values = [f"value {n}" for n in range(40)] + ["straße", "ŉ"] + [f"value {n}" for n in range(40, 60)]
    produce(kafka_servers, name, values)
    url = request.getfixturevalue("postgres_url") if sink == "postgres" else ""
    output = OUTPUTS[sink](name, kafka_servers, scratch, url)
    watcher = Watcher()
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / name), observer=watcher)
        .read(atonce.Kafka(name, servers=kafka_servers, options={"maxOffsetsPerTrigger": "20"}))
        .transform("SELECT CAST(key AS STRING) AS key, upper(CAST(value AS STRING)) AS value FROM input")
        .write(output.sink)
    )
    pipeline.run(available_now=True)
    expected = [value.upper() for value in values]
    assert "STRASSE" in expected
    assert Counter(output.values()) == Counter(expected)
    reasons = [event.why for event in watcher.events if event.step is Step.RETRYING]
    assert reasons == ["`upper` met text beyond ASCII: the query continues in Spark's JVM"]
    delivered = [event.batch_id for event in watcher.events if event.step is Step.DELIVERED]
    assert delivered == sorted(set(delivered)), "each batch once, in order"

    # The next run begins on columns again, and finds nothing that it could not do.
    again = Watcher()
    produce(kafka_servers, name, [f"value {n}" for n in range(60, 80)])
    replace(pipeline, observer=again).run(available_now=True)
    assert Counter(output.values()) == Counter([*expected, *(f"VALUE {n}" for n in range(60, 80))])
    assert Step.RETRYING not in again.steps()


@pytest.mark.parametrize("level", [Guarantee.NONE, Guarantee.AT_MOST_ONCE])
def test_levels_that_record_progress_first_never_run_on_columns(
    level: Guarantee, embedded: str, scratch: Path, spark: Any
) -> None:
    """S4, S5: by the time the values are seen there would be no way back."""
    name = f"letters-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=PARTITIONS)
    produce(embedded, name, ["straße", "value"])
    output, watcher = OUTPUTS["kafka"](name, embedded, scratch, ""), Watcher()
    (
        atonce.Pipeline(name, level, checkpoint=str(scratch / name), observer=watcher)
        .read(atonce.Kafka(name, servers=embedded))
        .transform("SELECT upper(CAST(value AS STRING)) AS value FROM input")
        .write(output.sink)
        .run(available_now=True)
    )
    assert sorted(output.values()) == ["STRASSE", "VALUE"]
    assert Step.RETRYING not in watcher.steps()


def test_at_least_once_goes_on_in_spark_too_and_loses_nothing(embedded: str, scratch: Path, spark: Any) -> None:
    """S6: what the columns had sent of the batch is sent again."""
    name = f"letters-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=PARTITIONS)
    values = [f"value {n}" for n in range(30)] + ["straße"]
    produce(embedded, name, values)
    output = OUTPUTS["kafka"](name, embedded, scratch, "")
    (
        atonce.Pipeline(name, Guarantee.AT_LEAST_ONCE, checkpoint=str(scratch / name))
        .read(atonce.Kafka(name, servers=embedded, options={"maxOffsetsPerTrigger": "20"}))
        .transform(lambda df: df.selectExpr("upper(CAST(value AS STRING)) AS value"))
        .write(output.sink)
        .run(available_now=True)
    )
    delivered = Counter(output.values())
    assert set(delivered) == {value.upper() for value in values}
    assert delivered["VALUE 0"] == 1, "the first batch was done"
