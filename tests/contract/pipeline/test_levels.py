"""One test body for every sink and every level, on the embedded broker and on Apache Kafka.

Without a fault each level delivers each record once; progress is visible as the group's lag; a second run goes on where
the first ended (S4 to S7, S12, S14, S18, S21).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic, group_lag
from atonce.guarantee import Guarantee
from atonce.spark.planning.planner import COLUMNS
from tests.contract.pipeline.parts import OUTPUTS, Output, produce


@pytest.fixture
def output(request: pytest.FixtureRequest, kafka_servers: str, scratch: Path) -> Output:
    kind = request.param
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    return OUTPUTS[kind](uuid.uuid4().hex[:8], kafka_servers, scratch, url)


@pytest.mark.parametrize("level", list(Guarantee))
@pytest.mark.parametrize(
    ("output", "columns"),
    [("kafka", "true"), ("kafka", "false"), ("postgres", "true"), ("postgres", "false"), ("sqlite", "true")],
    indirect=["output"],
)
def test_each_record_is_delivered_once(
    level: Guarantee, output: Output, columns: str, kafka_servers: str, scratch: Path, spark: Any
) -> None:
    topic = f"in-{uuid.uuid4().hex[:8]}"
    with Cluster(kafka_servers) as cluster:
        create_topic(cluster, topic, partitions=3)
    produce(kafka_servers, topic, range(300))
    pipeline = (
        atonce.Pipeline(topic, level, checkpoint=str(scratch / "checkpoint"), spark={COLUMNS: columns})
        .read(atonce.Kafka(topic, servers=kafka_servers))
        .transform("SELECT CAST(key AS STRING) AS key, upper(CAST(value AS STRING)) AS value FROM input")
        .write(output.sink)
    )
    pipeline.run(available_now=True)
    assert sorted(output.values()) == sorted(f"VALUE {i}" for i in range(300))

    produce(kafka_servers, topic, range(300, 400))
    pipeline.run(available_now=True)
    assert sorted(output.values()) == sorted(f"VALUE {i}" for i in range(400))

    with Cluster(kafka_servers) as cluster:
        lag = [each for each in group_lag(cluster, topic) if each.topic == topic]
    assert len(lag) == 3
    assert sum(each.committed for each in lag) == 400
    assert sum(each.lag for each in lag) == 0
