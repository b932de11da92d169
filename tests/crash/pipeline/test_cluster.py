"""A standalone cluster with two workers, one of them SIGKILLed in the middle of a batch (F20)."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import pytest

from atonce.apache.spark_cluster import SparkCluster
from atonce.client.admin import create_topic
from atonce.client.cluster import Cluster
from atonce.local.child import Child
from tests.contract.pipeline.parts import consume, postgres_output, produce


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", ["kafka", "postgres"])
def test_worker_killed_mid_batch_loses_and_doubles_nothing(
    embedded: str, postgres_url: str, scratch: Path, sink: str
) -> None:
    """Executors elsewhere write to Kafka themselves, and to a database through the driver."""
    name = f"cluster-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=4)
    produce(embedded, name, range(300), partitions=4)
    with SparkCluster(workers=2) as spark:
        told = {"name": name, "servers": embedded, "checkpoint": str(scratch / name), "master": spark.master}
        told["postgres"] = postgres_url if sink == "postgres" else ""
        command = [sys.executable, "-m", "tests.crash.pipeline.cluster_driver", json.dumps(told)]
        with Child(command, cwd=Path(__file__).parents[3], log=scratch / "driver.log") as driver:
            driver.wait_for_line("output-begun 1", timeout_s=240)
            spark.kill_worker(0)
            driver.wait_for_line("stopped", timeout_s=240)
            assert driver.wait(60) == 0
    if sink == "postgres":
        values = postgres_output(name, embedded, scratch, postgres_url).values()
    else:
        values = [value or "" for _, value in consume(embedded, f"{name}-out")]
    assert sorted(values) == sorted(f"value {i}" for i in range(300))
