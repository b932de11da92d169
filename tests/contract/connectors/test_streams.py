"""Files and tables as Spark streams: every row once over batches and restarts, positions, types, admission control."""

from __future__ import annotations

import json
import sqlite3
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from atonce.connectors.files.source import Files
from atonce.connectors.sql.table import Table
from atonce.errors import UsageError


def drain(source: Any, spark: Any, checkpoint: Path, start: Any = None) -> list[list[Any]]:
    """What each batch held, until everything that was there is read."""
    batches: list[list[Any]] = []
    query = (
        source.load(spark, start, {})
        .writeStream.foreachBatch(lambda df, _: batches.append(df.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


@pytest.fixture(params=["postgres", "sqlite"])
def outbox(request: pytest.FixtureRequest, scratch: Path) -> tuple[str, str, Any]:
    """(url, table, run SQL)"""
    table = f"outbox_{uuid.uuid4().hex[:10]}"
    if request.param == "sqlite":
        path = scratch / "app.db"

        def run_sqlite(sql: str) -> None:
            with sqlite3.connect(path) as connection:
                connection.execute(sql)

        run_sqlite(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT)")
        return f"sqlite:///{path}", table, run_sqlite
    url = request.getfixturevalue("postgres_url")

    def run_postgres(sql: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(sql.encode())

    run_postgres(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, body text)")
    return url, table, run_postgres


def test_rows_of_a_table_come_once_each_and_in_order_over_restarts(
    spark: Any, scratch: Path, outbox: tuple[str, str, Any]
) -> None:
    url, name, run = outbox
    for number in range(7):
        run(f"INSERT INTO {name} (body) VALUES ('row {number}')")
    table = Table(url, name, max_rows=3)
    table.check()
    start = table.first_positions()
    assert start == {name: 0}
    batches = drain(table, spark, scratch / "c", start)
    assert [[row.id for row in rows] for rows in batches] == [[1, 2, 3], [4, 5, 6], [7]]
    line = (scratch / "c" / "offsets" / "2").read_text().splitlines()[2]
    assert table.positions(line) == {name: 8}
    run(f"INSERT INTO {name} (body) VALUES ('after the restart')")
    assert [[row.body for row in rows] for rows in drain(table, spark, scratch / "c", start)] == [["after the restart"]]
    assert [[r.id for r in rows] for rows in drain(table, spark, scratch / "fresh", {name: 7})] == [[7, 8]]


def test_types_of_a_postgresql_table_arrive_as_sparks(spark: Any, scratch: Path, postgres_url: str) -> None:
    name = f"types_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, b boolean, s smallint, r real, d double precision, n numeric(20,4), "
            "t text, v varchar(9), y bytea, da date, ts timestamptz, tn timestamp, j jsonb, u uuid)".encode()
        )
        connection.execute(
            f"INSERT INTO {name} VALUES (1, true, -2, 1.5, 0.1, -12345.6789, 'ü', 'v', '\\xff00', '2026-11-15', "
            "'2026-11-15 01:02:03.000004+02', '1999-12-31 23:59:59', '{\"a\": 1}', "
            "'0f8fad5b-d9cb-469f-a165-70867728950e'), (2)".replace(", (2)", "").encode()
        )
        connection.execute(f"INSERT INTO {name} (id) VALUES (2)".encode())
    (rows,) = drain(Table(postgres_url, name), spark, scratch / "c", {name: 0})
    assert tuple(rows[0])[:10] == (
        1,
        True,
        -2,
        1.5,
        0.1,
        Decimal("-12345.6789"),
        "ü",
        "v",
        b"\xff\x00",
        date(2026, 11, 15),
    )
    assert rows[0].ts.astimezone(UTC) == datetime(2026, 11, 14, 23, 2, 3, 4, UTC)
    assert rows[0].tn == datetime(1999, 12, 31, 23, 59, 59)
    assert (json.loads(rows[0].j), rows[0].u) == ({"a": 1}, "0f8fad5b-d9cb-469f-a165-70867728950e")
    assert tuple(rows[1])[1:] == (None,) * 13


def test_json_lines_are_published_as_they_are_unless_a_schema_is_given(spark: Any, scratch: Path) -> None:
    inbox = scratch / "in"
    inbox.mkdir()
    (inbox / "a.json").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n')
    plain, typed = Files(inbox), Files(inbox, schema="id bigint, name string")
    plain.check()
    (rows,) = drain(plain, spark, scratch / "plain")
    assert [row.value for row in rows] == ['{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}']
    (rows,) = drain(typed, spark, scratch / "typed")
    assert [tuple(row) for row in rows] == [(1, "a"), (2, "b")]
    (inbox / "b.json").write_text('{"id": 3, "name": "c"}\n')
    (rows,) = drain(typed, spark, scratch / "typed")
    assert [tuple(row) for row in rows] == [(3, "c")]
    line = (scratch / "typed" / "offsets" / "0").read_text().splitlines()[2]
    assert typed.positions(line) is None and typed.first_positions() is None, "Spark's file offsets are opaque"


def test_csv_and_parquet_are_looked_at_for_their_schema(spark: Any, scratch: Path) -> None:
    (scratch / "csv").mkdir()
    (scratch / "csv" / "a.csv").write_text("id,name\n1,a\n")
    (rows,) = drain(Files(scratch / "csv", "csv", options={"header": "true"}), spark, scratch / "c1")
    assert [row.asDict() for row in rows] == [{"id": "1", "name": "a"}]
    spark.range(3).write.parquet(str(scratch / "parquet"))
    batches = drain(Files(scratch / "parquet", "parquet"), spark, scratch / "c2")
    assert sorted(row.id for rows in batches for row in rows) == [0, 1, 2]
    (scratch / "empty").mkdir()
    with pytest.raises(UsageError, match="give schema="):
        Files(scratch / "empty", "parquet").load(spark, None, {})
