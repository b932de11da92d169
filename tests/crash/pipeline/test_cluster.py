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
from tests.contract.pipeline.parts import consume, produce


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_worker_killed_mid_batch_loses_and_doubles_nothing(embedded: str, scratch: Path) -> None:
    name = f"cluster-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=4)
    produce(embedded, name, range(300), partitions=4)
    with SparkCluster(workers=2) as spark:
        told = {"name": name, "servers": embedded, "checkpoint": str(scratch / name), "master": spark.master}
        command = [sys.executable, "-m", "tests.crash.pipeline.cluster_driver", json.dumps(told)]
        with Child(command, cwd=Path(__file__).parents[3], log=scratch / "driver.log") as driver:
            driver.wait_for_line("output-begun 1", timeout_s=240)
            spark.kill_worker(0)
            driver.wait_for_line("stopped", timeout_s=240)
            assert driver.wait(60) == 0
    values = sorted(value or "" for _, value in consume(embedded, f"{name}-out"))
    assert values == sorted(f"value {i}" for i in range(300))
