"""Checkpoints that Spark's own Kafka connector has written, taken over."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.peers import spark_python

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import RefusedError
from atonce.local.servers.jars import jars
from atonce.local.servers.pins import SPARK_CONNECTOR
from atonce.spark.checkpoint import left
from tests.contract.pipeline.parts import produce

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
RECORDS, MORE = 60, 90


class Queries:
    """What they left behind."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers, self.topic, self.folder = servers, topic, folder

    def written(self, name: str) -> list[str]:
        return (self.folder / f"{name}.txt").read_text().splitlines()

    def pipeline(self, name: str) -> atonce.Pipeline:
        return (
            atonce.Pipeline(f"{self.topic}-{name}", checkpoint=str(self.folder / f"ours-{name}"), say=lambda _: None)
            .read(atonce.Kafka(self.topic, servers=self.servers))
            .transform("SELECT CAST(value AS STRING) AS value FROM input")
            .write(atonce.SQLite(self.folder / "ours.db", table=name.replace("-", "_")))
        )

    def delivered(self, name: str) -> list[str]:
        import sqlite3

        with sqlite3.connect(self.folder / "ours.db") as connection:
            return [value for (value,) in connection.execute(f"SELECT value FROM {name.replace('-', '_')}")]


@pytest.fixture(scope="module")
def queries(apache_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queries]:
    topic, folder = f"adopt-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("adopt")
    with Cluster(apache_kafka) as cluster:
        create_topic(cluster, topic, partitions=3)
        create_topic(cluster, f"{topic}-async", partitions=1)
    produce(apache_kafka, topic, range(RECORDS))
    listed = ",".join(str(path) for path in jars(SPARK_CONNECTOR))
    program = str(Path(__file__).with_name("spark_query.py"))
    command = [str(spark_python()), program, apache_kafka, topic, str(folder), listed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 9, done.stderr[-4000:]
    produce(apache_kafka, topic, range(RECORDS, MORE))
    yield Queries(apache_kafka, topic, folder)


def everything() -> list[str]:
    return sorted(f"value {number}" for number in range(MORE))


def test_a_finished_query_of_the_connector_goes_on_without_a_gap_or_a_repeat(queries: Queries, spark: Any) -> None:
    assert len(queries.written("finished")) == RECORDS
    pipeline = queries.pipeline("finished")
    pipeline.adopt(str(queries.folder / "finished"))  # watched for ten seconds, as users see it
    pipeline.run(available_now=True)
    assert sorted([*queries.written("finished"), *queries.delivered("finished")]) == everything()


@pytest.mark.parametrize(("choice", "repeated", "missing"), [("again", 9, 0), ("done", 0, 9)])
def test_a_query_that_was_killed_inside_a_batch_goes_on_as_its_owner_says(
    queries: Queries, spark: Any, monkeypatch: pytest.MonkeyPatch, choice: Any, repeated: int, missing: int
) -> None:
    monkeypatch.setattr(left, "QUIET_S", 0.0)
    name, checkpoint = f"killed-{choice}", str(queries.folder / "killed")
    with pytest.raises(RefusedError, match="batch 2 was planned and not committed, 18 offsets after batch 1"):
        queries.pipeline(name).adopt(checkpoint)
    queries.pipeline(name).adopt(checkpoint, choice)
    queries.pipeline(name).run(available_now=True)
    found = [*queries.written("killed"), *queries.delivered(name)]
    assert len(found) - len(set(found)) == repeated
    assert len(set(everything()) - set(found)) == missing


@pytest.mark.parametrize(("name", "why"), [("counting", "holds state"), ("async", "asyncProgressTrackingEnabled")])
def test_what_cannot_be_taken_over_is_refused(
    queries: Queries, spark: Any, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    monkeypatch.setattr(left, "QUIET_S", 0.0)
    with pytest.raises(RefusedError, match=why):
        queries.pipeline(name).adopt(str(queries.folder / name))
