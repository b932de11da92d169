"""A row that a database refuses is named by its place in the input, although the transform dropped those columns."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import UndeliverableRow
from tests.contract.pipeline.parts import produce

NULLED = "SELECT CAST(CAST(key AS STRING) AS INT) AS id, NULLIF(CAST(value AS STRING), 'value 7') AS value FROM input"
TABLE = "CREATE TABLE {} (id INT CHECK (id <> {}), value {} NOT NULL)"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("refused_by", ["us", "the server"])
@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_refused_row_is_named_by_partition_and_offset(
    embedded: str, scratch: Path, postgres_url: str, database: str, refused_by: str
) -> None:
    name = f"bad_{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=3)
    produce(embedded, name, range(12), partitions=3)
    checked = -1 if refused_by == "us" else 8
    sink: Any
    if database == "postgres":
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(TABLE.format(name, checked, "text").encode())
        sink = atonce.Postgres(postgres_url, table=name)
    else:
        with sqlite3.connect(scratch / "out.db") as file:
            file.execute(TABLE.format(name, checked, "TEXT"))
        sink = atonce.SQLite(scratch / "out.db", table=name)
    transform = NULLED if refused_by == "us" else NULLED.replace("value 7", "nothing")
    place = "partition 1 offset 2" if refused_by == "us" else "partition 2 offset 2"
    pipeline = (
        atonce.Pipeline(name, checkpoint=str(scratch / name))
        .read(atonce.Kafka(name, servers=embedded))
        .transform(transform)
        .write(sink)
    )
    with pytest.raises(UndeliverableRow, match=f"input '{name}' {place}: a row cannot be delivered"):
        pipeline.run(available_now=True)
    if database == "postgres":
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() == (0,)
    else:
        with sqlite3.connect(scratch / "out.db") as file:
            assert file.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)
