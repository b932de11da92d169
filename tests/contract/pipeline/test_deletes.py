"""`deletes` as a step: a tombstone, or a condition, deletes by key, and the table is exact whatever the cuts."""

from __future__ import annotations

import json
import random
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import UsageError

KEYS = 6
UPSERT: dict[str, Any] = {"mode": "upsert", "key": "id", "order_by": "seq", "on_error": "dead-letter"}


def changes(seed: int, count: int = 60) -> list[tuple[str, bytes | None]]:
    """Keys and values in the order of their topic; a third of them are tombstones."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        value = None if chance.random() < 0.35 else json.dumps({"name": f"n{number}", "size": number % 5}).encode()
        made.append((f"k{chance.randrange(KEYS)}", value))
    return made


def newest(told: list[tuple[str, bytes | None]]) -> dict[str, str]:
    """What a table holds of those with a size above 0: a filter hides rows, and never a deletion."""
    rows: dict[str, str] = {}
    for key, value in told:
        read = None if value is None else json.loads(value)
        if read is None:
            rows.pop(key, None)
        elif read["size"] > 0:
            rows[key] = read["name"]
    return rows


def filled(servers: str, told: list[tuple[str, bytes | None]]) -> str:
    from confluent_kafka import Producer

    topic = f"deletes-{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=2)
    producer = Producer({"bootstrap.servers": servers})
    for key, value in told:
        producer.produce(topic, key=key, value=value, partition=int(key[1:]) % 2)
    assert producer.flush(30) == 0
    return topic


def _sqlite(request: pytest.FixtureRequest, table: str) -> tuple[Any, Callable[[], list[Any]]]:
    file = request.getfixturevalue("scratch") / "out.db"

    def rows() -> list[Any]:
        with sqlite3.connect(file) as connection:
            return connection.execute(f"SELECT id, name FROM {table}").fetchall()

    return atonce.SQLite(file, table=table, **UPSERT), rows


def _duckdb(request: pytest.FixtureRequest, table: str) -> tuple[Any, Callable[[], list[Any]]]:
    import duckdb

    file = request.getfixturevalue("scratch") / "out.duckdb"

    def rows() -> list[Any]:
        with duckdb.connect(str(file)) as connection:
            return connection.execute(f"SELECT id, name FROM {table}").fetchall()

    return atonce.DuckDB(file, table=table, **UPSERT), rows


def _postgres(request: pytest.FixtureRequest, table: str) -> tuple[Any, Callable[[], list[Any]]]:
    import psycopg

    url = request.getfixturevalue("postgres_url")

    def rows() -> list[Any]:
        with psycopg.connect(url) as connection:
            return connection.execute(f"SELECT id, name FROM {table}".encode()).fetchall()

    return atonce.Postgres(url, table=table, create=True, **UPSERT), rows


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("database", [_sqlite, _duckdb, _postgres])
def test_tombstones_delete_by_key_and_pass_the_filters_whatever_the_cuts(
    request: pytest.FixtureRequest, embedded: str, scratch: Path, database: Any
) -> None:
    told = changes(7)
    topic = filled(embedded, [*told, ("k0", b"{")])
    sink, rows = database(request, f"t_{uuid.uuid4().hex[:8]}")
    made = (
        atonce.Pipeline(topic, checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka(topic, servers=embedded, options={"maxOffsetsPerTrigger": "17"}))
        .parse("json", "name string, size int")
        .transform("SELECT CAST(key AS STRING) AS id, value.name, offset AS seq FROM input WHERE value.size > 0")
        .deletes("tombstones")
        .write(sink)
    )
    made.run(available_now=True)
    assert dict(rows()) == newest(told)
    assert [kept.letter.reason[:8] for kept in made.dead_letters()] == ["not JSON"], "what is no value is no tombstone"
    made.reset("earliest")
    made.run(available_now=True)
    assert dict(rows()) == newest(told), "older rows come again, and what is deleted stays so"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("order_by", ["seq", None])
def test_condition_on_the_rows_deletes_and_the_flag_is_not_stored(
    embedded: str, scratch: Path, order_by: str | None
) -> None:
    values = [b'{"id": 1, "status": "new"}', b'{"id": 2, "status": "new"}', b'{"id": 1, "status": "gone"}']
    topic = filled(embedded, [("k0", value) for value in values])
    sink = atonce.SQLite(scratch / "out.db", table="orders", mode="upsert", key="id", order_by=order_by)
    made = (
        atonce.Pipeline(topic, checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka(topic, servers=embedded))
        .parse("json", "id int, status string")
        .transform("SELECT value.*, offset AS seq FROM input")
        .deletes("status = 'gone'")
        .write(sink)
    )
    made.run(available_now=True)
    with sqlite3.connect(scratch / "out.db") as connection:
        assert connection.execute("SELECT * FROM orders").fetchall() == [(2, "new", 1)]


@pytest.mark.usefixtures("spark")
def test_a_transform_behind_which_no_tombstone_has_a_row_is_refused_before_anything_is_made(
    request: pytest.FixtureRequest, embedded: str, scratch: Path
) -> None:
    topic = filled(embedded, [("k0", None)])
    sink, _ = _sqlite(request, "orders")
    made = (
        atonce.Pipeline(topic, checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka(topic, servers=embedded))
        .transform("SELECT CAST(key AS STRING) AS id, max(offset) AS seq, count(*) AS n FROM input GROUP BY key")
        .deletes("tombstones")
        .write(sink, mode="update")
    )
    with pytest.raises(UsageError, match="rows of several records"):
        made.run(available_now=True)
    assert not (scratch / "out.db").exists()
