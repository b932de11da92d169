"""`map_arrow` into PostgreSQL: rows go from the source's tasks into one COPY, with the same promises as by any other way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.errors import RefusedError, UndeliverableRow
from tests.contract.pipeline.parts import Watcher, produce

SCHEMA = "id bigint, value string"
pytestmark = pytest.mark.usefixtures("spark")


def numbered(batch: Any) -> Any:
    return pa.record_batch(
        {
            "value": batch.column("value").cast(pa.string()),
            "id": batch.column("key").cast(pa.string()).cast(pa.int32()),  # declared bigint: it is cast
        }
    )


@pytest.fixture
def name() -> str:
    return f"arrow_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def query(postgres_url: str) -> Callable[[str], list[Any]]:
    def run(sql: str) -> list[Any]:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def pipeline(name: str, kafka_servers: str, postgres_url: str, scratch: Path) -> atonce.Pipeline:
    """Twelve records in three partitions, into a table of the same name."""
    with Cluster(kafka_servers) as cluster:
        create_topic(cluster, name, partitions=3)
    produce(kafka_servers, name, range(12))
    return (
        atonce.Pipeline(name, checkpoint=str(scratch / name))
        .read(atonce.Kafka(name, servers=kafka_servers))
        .map_arrow(numbered, SCHEMA)
        .write(atonce.Postgres(postgres_url, table=name, create=True))
    )


def test_rows_arrive_once_in_the_declared_types_and_the_next_run_goes_on(
    pipeline: atonce.Pipeline, name: str, query: Callable[[str], list[Any]]
) -> None:
    pipeline.run(available_now=True)
    produce(pipeline.source.servers, name, range(12, 20))
    pipeline.run(available_now=True)
    assert query(f"SELECT id, value FROM {name} ORDER BY id") == [(i, f"value {i}") for i in range(20)]
    types = query(f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{name}'")
    assert dict(types) == {"id": "bigint", "value": "text"}


@pytest.mark.parametrize("level", ["none", "at-most-once", "at-least-once"])
def test_the_weaker_levels_deliver_everything_when_nothing_fails(
    pipeline: atonce.Pipeline, name: str, query: Callable[[str], list[Any]], level: str
) -> None:
    replace(pipeline, guarantee=level).run(available_now=True)
    assert query(f"SELECT id FROM {name} ORDER BY id") == [(i,) for i in range(12)]


def test_of_several_rows_of_a_key_the_last_in_input_order_wins(
    pipeline: atonce.Pipeline, name: str, postgres_url: str, query: Callable[[str], list[Any]]
) -> None:
    def of_three_keys(batch: Any) -> Any:
        return pa.record_batch({"id": batch.column("partition").cast(pa.int64()), "value": numbered(batch)["value"]})

    sink = atonce.Postgres(postgres_url, table=name, mode="upsert", key="id", create=True)
    replace(pipeline, arrow=of_three_keys, sink=sink).run(available_now=True)
    assert query(f"SELECT id, value FROM {name} ORDER BY id") == [(0, "value 9"), (1, "value 10"), (2, "value 11")]


def test_a_worker_killed_in_the_middle_of_its_rows_leaves_none_of_them_and_the_run_goes_on(
    pipeline: atonce.Pipeline, name: str, scratch: Path, query: Callable[[str], list[Any]]
) -> None:
    marker = scratch / "died"

    def dies_once(batch: Any) -> Any:
        rows = numbered(batch)
        yield rows
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    replace(pipeline, arrow=dies_once).run(available_now=True)
    assert marker.exists()
    assert query(f"SELECT id FROM {name} ORDER BY id") == [(i,) for i in range(12)]


def test_the_users_own_error_is_told_where_spark_retries_tasks(
    pipeline: atonce.Pipeline, name: str, postgres_url: str, scratch: Path, query: Callable[[str], list[Any]]
) -> None:
    """Not the refusal of the second attempt, which Spark reports because it came last."""
    script = Path(__file__).with_name("failing_transform.py")
    ended = subprocess.run(
        [sys.executable, str(script), name, str(pipeline.source.servers), postgres_url, str(scratch / "checkpoint")],
        env={**os.environ, "PYTHONPATH": str(script.parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = ended.stdout.splitlines()[-1]
    assert told.startswith(f"RefusedError: a batch of '{name}' failed: LookupError: no such currency: XYZ ("), told
    assert "failing_transform.py:16" in told
    assert query(f"SELECT count(*) FROM {name}") == [(0,)]


def test_a_row_that_the_server_refuses_is_named_by_partition_and_offset(
    pipeline: atonce.Pipeline, name: str, query: Callable[[str], list[Any]]
) -> None:
    query(f"CREATE TABLE {name} (id bigint CHECK (id <> 8), value text)")
    with pytest.raises(UndeliverableRow, match=f"input '{name}' partition 2 offset 2"):
        pipeline.run(available_now=True)
    assert query(f"SELECT count(*) FROM {name}") == [(0,)]


def test_a_row_that_the_server_refuses_is_put_aside_when_the_user_says_so(
    pipeline: atonce.Pipeline, name: str, postgres_url: str, query: Callable[[str], list[Any]]
) -> None:
    query(f"CREATE TABLE {name} (id bigint CHECK (id <> 8), value text)")
    replace(pipeline, sink=atonce.Postgres(postgres_url, table=name, on_error="dead-letter")).run(available_now=True)
    assert query(f"SELECT id FROM {name} ORDER BY id") == [(i,) for i in range(12) if i != 8]
    assert [row[0] for row in query(f"SELECT row_json::json->>'id' FROM {name}_dead_letter")] == ["8"]


def test_a_table_whose_columns_change_under_a_running_pipeline_is_not_written_to(
    pipeline: atonce.Pipeline, name: str, query: Callable[[str], list[Any]]
) -> None:
    query(f"CREATE TABLE {name} (id bigint, value text)")
    watcher = Watcher(Step.PLANNED, lambda _: query(f"ALTER TABLE {name} ALTER COLUMN id TYPE numeric"))
    with pytest.raises(RefusedError, match=f"the columns of table {name} changed while the pipeline ran"):
        replace(pipeline, observer=watcher).run(available_now=True)
    assert query(f"SELECT count(*) FROM {name}") == [(0,)]
    pipeline.run(available_now=True)
    assert query(f"SELECT id FROM {name} ORDER BY id") == [(i,) for i in range(12)]
