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
from tests.contract.pipeline.parts import OUTPUTS, produce


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("inside_the_source", [False, True])
@pytest.mark.parametrize("sink", OUTPUTS)
def test_worker_killed_mid_batch_loses_and_doubles_nothing(
    kafka_servers: str, postgres_url: str, scratch: Path, sink: str, inside_the_source: bool
) -> None:
    """Executors elsewhere write to Kafka themselves, and to a database through the driver."""
    name = f"cluster-{uuid.uuid4().hex[:8]}"
    with Cluster(kafka_servers) as cluster:
        create_topic(cluster, name, partitions=4)
    produce(kafka_servers, name, range(300), partitions=4)
    with SparkCluster(workers=2) as spark:
        told = {
            "name": name,
            "servers": kafka_servers,
            "checkpoint": str(scratch / name),
            "scratch": str(scratch),
            "master": spark.master,
            "sink": sink,
            "postgres": postgres_url,
            "inside_the_source": inside_the_source,
        }
        command = [sys.executable, "-m", "tests.crash.pipeline.cluster_driver", json.dumps(told)]
        with Child(command, cwd=Path(__file__).parents[3], log=scratch / "driver.log") as driver:
            driver.wait_for_line("output-begun 1", timeout_s=240)
            spark.kill_worker(0)
            driver.wait_for_line("stopped", timeout_s=240)
            assert driver.wait(60) == 0
    values = OUTPUTS[sink](name, kafka_servers, scratch, postgres_url).values()
    assert sorted(values) == sorted(f"value {i}" for i in range(300))
