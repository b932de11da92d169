"""Ledgers and checkpoints as an earlier version left them (tests/fixtures/ledgers): each pipeline goes on, exactly."""

from __future__ import annotations

import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import atonce
from atonce.broker.embedded import Broker
from atonce.client.cluster import Cluster
from atonce.client.offsets import committed
from atonce.delivery.format import VERSION
from atonce.errors import RefusedError
from tests.contract.pipeline.parts import Watcher, consume

FIXTURES = Path(__file__).parents[2] / "fixtures" / "ledgers"
ALL = sorted(f"value {i}" for i in range(40))


class Left:
    """What was left behind, unpacked and running."""

    def __init__(self, root: Path, servers: str, url: str) -> None:
        self.root, self.servers, self.url = root, servers, url

    def pipeline(self, name: str, **options: Any) -> atonce.Pipeline:
        table = f"t_{name.replace('-', '_')}"
        source: Any = atonce.Kafka(name, servers=self.servers, options={"maxOffsetsPerTrigger": "20"})
        sink: Any = atonce.Kafka(f"out-{name}", servers=self.servers)
        sql = "SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input"
        if name.startswith("outbox"):
            source = atonce.Table(str(self.root / "outbox.db"), table=table, max_rows=20)
            sql = "SELECT CAST(id AS STRING) AS key, body AS value FROM input"
        elif name.startswith("sqlite"):
            sink = atonce.SQLite(str(self.root / "out.db"), table=table)
        elif name.startswith("postgres"):
            sink = atonce.Postgres(self.url, table=table)
        made = atonce.Pipeline(name, checkpoint=str(self.root / "checkpoints" / name), **options)
        return made.read(source).transform(sql).write(sink)

    def delivered(self, name: str) -> list[str]:
        select = f"SELECT value FROM t_{name.replace('-', '_')}"
        if name.startswith("sqlite"):
            with sqlite3.connect(self.root / "out.db") as connection:
                return sorted(row[0] for row in connection.execute(select))
        if name.startswith("postgres"):
            with psycopg.connect(self.url) as connection:
                return sorted(row[0] for row in connection.execute(select.encode()))
        return sorted(value or "" for _, value in consume(self.servers, f"out-{name}"))

    def versions(self, name: str) -> set[int]:
        """The formats that the pipeline's ledger holds now."""
        select = f"SELECT version FROM atonce_ledger WHERE name = '{name}'"
        if name.startswith("sqlite"):
            with sqlite3.connect(self.root / "out.db") as connection:
                return {row[0] for row in connection.execute(select)}
        if name.startswith("postgres"):
            with psycopg.connect(self.url) as connection:
                return {row[0] for row in connection.execute(select.encode())}
        with Cluster(self.servers) as cluster:
            return {int(each.metadata.split('"v":')[1].split(",")[0]) for each in committed(cluster, name).values()}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Left]:
    root = tmp_path_factory.mktemp("ledgers")
    with tarfile.open(FIXTURES / "v1.tar.gz") as stored:
        stored.extractall(root, filter="data")
    database = "older_ledgers"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
    url = postgres_url.rpartition("/")[0] + f"/{database}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((root / "v1" / "postgres.sql").read_bytes())
    with Broker(data=root / "v1" / "broker") as broker:
        yield Left(root / "v1", broker.servers, url)


@pytest.mark.parametrize("state", ["clean", "planned", "delivered"])
@pytest.mark.parametrize("sink", ["kafka", "sqlite", "postgres", "outbox"])
def test_pipeline_that_an_earlier_version_left_goes_on_exactly(left: Left, spark: Any, sink: str, state: str) -> None:
    name = f"{sink}-{state}"
    assert left.delivered(name) != ALL or state == "delivered"
    watcher = Watcher()
    left.pipeline(name, observer=watcher).run(available_now=True)
    assert left.delivered(name) == ALL
    if state != "delivered":  # there nothing was left to record
        assert left.versions(name) == {VERSION}


def test_checkpoint_of_a_newer_version_is_refused_with_one_line(left: Left, spark: Any) -> None:
    pipeline = left.pipeline("kafka-clean")
    ours = Path(str(pipeline.checkpoint)) / "atonce.json"
    before = ours.read_text()
    ours.write_text(f'{{"version": {VERSION + 1}, "first": null}}')
    with pytest.raises(RefusedError, match=rf"newer AtOnce \(format {VERSION + 1}; this one knows up to {VERSION}\)"):
        pipeline.run(available_now=True)
    ours.write_text(before)
