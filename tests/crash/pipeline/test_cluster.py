"""A standalone cluster with two workers, one of them SIGKILLed in the middle of a batch (F20)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.local.child import Child
from atonce.local.servers.cluster_secret import find_secret
from atonce.local.servers.spark_cluster import SparkCluster
from tests.contract.pipeline.parts import OUTPUTS, consume, produce


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


@pytest.mark.timeout(300)
def test_a_cluster_of_one_machine_spools_until_an_attempt_fails(embedded: str, scratch: Path) -> None:
    """Where senders turn out not to see the spool, the batch runs again through Spark's shuffle, and the rest too."""
    name, number = f"spool-{uuid.uuid4().hex[:8]}", 60_000
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=4)
    produce(embedded, name, range(number), partitions=4)
    with SparkCluster(workers=2) as spark:
        arguments = [name, embedded, str(scratch / name), spark.master]
        command = [sys.executable, "-m", "tests.crash.pipeline.spooling_driver", *arguments]
        ended = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    told = [line for line in ended.stdout.splitlines() if line.startswith(("spooled", "through", "aborted"))]
    assert [line.split(" ", 1)[0] for line in told] == ["spooled", "spooled", "aborted", "through", "through"], told
    assert sorted(value or "" for _, value in consume(embedded, f"{name}-out")) == sorted(
        f"value {i}" for i in range(number)
    )


class TwoHosts(SparkCluster):
    """Spark runs no copy of a task on the host that the task is on."""

    def _launch(self, name: str, main: str, arguments: list[str]) -> Child:
        before = self._host
        if name == "worker-1":
            self._host = "127.0.0.2"
            arguments = ["--host", self._host, *arguments[2:]]
        try:
            return super()._launch(name, main, arguments)
        finally:
            self._host = before


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "sink", ["kafka", pytest.param("sqlite", marks=pytest.mark.soak), pytest.param("postgres", marks=pytest.mark.soak)]
)
def test_copies_of_a_slow_task_neither_abort_the_batch_nor_double_a_row(
    embedded: str, scratch: Path, sink: str, request: pytest.FixtureRequest
) -> None:
    """`spark.speculation`: the copy waits for the task that writes, and is ended by Spark when that one is done."""
    name, attempts = f"copies-{uuid.uuid4().hex[:8]}", scratch / "attempts"
    attempts.mkdir()
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=4)
    produce(embedded, name, range(100), partitions=4)
    postgres = request.getfixturevalue("postgres_url") if sink == "postgres" else ""
    with TwoHosts(workers=2) as spark:
        told = {
            "name": name,
            "servers": embedded,
            "checkpoint": str(scratch / name),
            "scratch": str(scratch),
            "master": spark.master,
            "sink": sink,
            "postgres": postgres,
            "attempts": str(attempts),
        }
        command = [sys.executable, "-m", "tests.crash.pipeline.speculating_driver", json.dumps(told)]
        ended = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    ran = sorted(file.name for file in attempts.iterdir())
    assert any(each.endswith("-1") for each in ran), f"Spark ran no copy: {ran}"
    assert "aborted" not in ended.stdout, ended.stdout
    values = OUTPUTS[sink](name, embedded, scratch, postgres).values()
    assert sorted(values) == sorted(f"value {i}" for i in range(100))


@pytest.mark.timeout(300)
def test_where_spark_encrypts_driver_and_tasks_of_ours_do_too(embedded: str, scratch: Path) -> None:
    """And the cluster's secret, which our drivers prove to know, is on no command line."""
    name = f"encrypted-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(embedded, name, range(50), partitions=2)
    with SparkCluster(workers=1) as spark:
        told = {"name": name, "servers": embedded, "scratch": str(scratch), "master": spark.master}
        command = [sys.executable, "-m", "tests.crash.pipeline.encrypted_driver", json.dumps(told)]
        with Child(command, cwd=Path(__file__).parents[3], log=scratch / "driver.log") as driver:
            driver.wait_for_line("authenticated true", timeout_s=120)
            shown = " ".join(
                word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()
            )
            secret = find_secret(spark.master)
            assert secret and secret not in shown
            printed = driver.read_output()
            assert driver.wait(200) == 0, (scratch / "driver.log").read_text()[-3000:]
    assert "done kafka" in printed and "done sqlite" in printed
    assert sorted(value or "" for _, value in consume(embedded, f"{name}-out")) == sorted(
        f"value {i}" for i in range(50)
    )
    with sqlite3.connect(scratch / "out.db") as database:
        assert database.execute("SELECT count(*), count(DISTINCT value) FROM rows").fetchone() == (50, 50)
