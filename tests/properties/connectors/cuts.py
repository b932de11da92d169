"""The same input in many cuts: batches as tasks would send them, through the stores' own staging and merge, no Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType

from atonce.connectors.sql.duckdb.file import DuckFile
from atonce.connectors.sql.duckdb.sink import DuckDB
from atonce.connectors.sql.duckdb.spool import Spool
from atonce.connectors.sql.duckdb.store import DuckStore
from atonce.connectors.sql.duckdb.target import resolve as resolve_duckdb
from atonce.connectors.sql.postgres.copy import HEADER, TRAILER
from atonce.connectors.sql.postgres.rows import copy_statement, copy_task
from atonce.connectors.sql.postgres.sink import Postgres
from atonce.connectors.sql.postgres.store import PostgresStore
from atonce.connectors.sql.postgres.store import connect as connect_postgres
from atonce.connectors.sql.rows_in import DATA, DEAD
from atonce.connectors.sql.sqlite.sink import SQLite
from atonce.connectors.sql.sqlite.store import SqliteStore, Writer
from atonce.connectors.sql.sqlite.store import connect as connect_sqlite
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.progress import Plan
from atonce.guarantee import Guarantee

Row = dict[str, Any]
Cut = list[list[list[Row]]]
"""Batches; of each batch the rows of each input partition."""

KINDS: dict[str, tuple[pa.DataType, DataType]] = {
    "key": (pa.string(), StringType()),
    "at": (pa.int64(), LongType()),
    "value": (pa.string(), StringType()),
    "gone": (pa.bool_(), BooleanType()),
    "partition": (pa.int32(), IntegerType()),
    "offset": (pa.int64(), LongType()),
}
COLUMNS = "key {text} PRIMARY KEY, at bigint NOT NULL, value {text} CHECK (value <> 'bad'){more}"


def schema(names: Sequence[str]) -> StructType:
    return StructType([StructField(name, KINDS[name][1]) for name in names])


def batch() -> Batch:
    return Batch(df=None, plan=Plan(query_id="q", batch_id=0, start={}, end={}))


def identity() -> Identity:
    return Identity(name="cuts", instance="i", guarantee=Guarantee.EFFECTIVELY_ONCE)


class NoSpark:
    """Stands for a local session, of which the stores want to know only that it is one."""

    master = "local[2]"

    @property
    def sparkContext(self) -> NoSpark:
        return self


@dataclass
class Frames:
    """Stands for a task's connection to the driver."""

    data: list[bytes] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)

    def send(self, kind: bytes, payload: Any, rows: int = 0) -> None:
        assert kind in (DATA, DEAD), payload
        (self.data if kind == DATA else self.dead).append(bytes(payload))


def pieces(parts: list[list[Row]], names: Sequence[str]) -> Iterator[tuple[Any, int]]:
    """(record batch, Spark partition), with the columns in the order that the task wants."""
    for task, rows in enumerate(parts):
        arrays = [pa.array([row[name] for row in rows], KINDS[name][0]) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names)), task


def through_sqlite(names: Sequence[str], table: str, options: dict[str, Any]) -> Callable[[Cut], list[Any]]:
    sink = SQLite("unused.db", "t", create=False, mode="upsert", key="key", on_error="dead-letter", **options)

    def run(cut: Cut) -> list[Any]:
        connection = connect_sqlite(":memory:")
        try:
            connection.execute(table.replace("{text}", "TEXT"))
            store = SqliteStore(sink, identity(), NoSpark())
            for parts in cut:
                _one_batch_sqlite(store, connection, parts, names)
            return sorted(connection.execute("SELECT * FROM t").fetchall())
        finally:
            connection.close()

    return run


def _one_batch_sqlite(
    store: SqliteStore, connection: sqlite3.Connection, parts: list[list[Row]], names: Sequence[str]
) -> None:
    store.begin(connection)
    writer = Writer(connection, store.target(connection, schema(names)), batch())
    task, feed = store.task(writer.target), Frames()
    for piece, number in pieces(parts, writer.target.selected):
        task.send(feed, piece, number, 0)  # type: ignore[arg-type]
    for frame in feed.data:
        writer.take(frame)
    store.finish(connection, batch(), writer)
    store.commit(connection)


class InMemory(DuckFile):
    """A file that lasts as long as `kept`."""

    def __init__(self, kept: duckdb.DuckDBPyConnection) -> None:
        super().__init__(f"memory-{id(kept)}")
        self._kept = kept

    def _open(self) -> duckdb.DuckDBPyConnection:
        return self._kept.cursor()


def through_duckdb(names: Sequence[str], table: str, options: dict[str, Any]) -> Callable[[Cut], list[Any]]:
    sink = DuckDB("unused.duckdb", "t", create=False, mode="upsert", key="key", **options)

    def run(cut: Cut) -> list[Any]:
        with duckdb.connect(":memory:") as kept:
            kept.execute(table.replace("{text}", "text").replace(" at ", ' "at" '))
            store, file = DuckStore(sink, identity(), NoSpark()), InMemory(kept)
            for parts in cut:
                _one_batch_duckdb(store, sink, file, parts, names)
            return sorted(kept.execute("SELECT * FROM t").fetchall())

    return run


def _one_batch_duckdb(
    store: DuckStore, sink: DuckDB, file: DuckFile, parts: list[list[Row]], names: Sequence[str]
) -> None:
    target = resolve_duckdb(file, sink, schema(names))
    task, feed = store.task(target), Frames()
    for piece, number in pieces(parts, target.selected):
        task.send(feed, piece, number, 0)  # type: ignore[arg-type]
    with Spool() as spool:
        for frame in feed.data:
            spool.take(frame)
        store.finish(file, target, spool.reader())
    file.commit()


def through_postgres(
    url: str, name: str, names: Sequence[str], table: str, options: dict[str, Any]
) -> Callable[[Cut], list[Any]]:
    sink = Postgres(url, name, mode="upsert", key="key", on_error="dead-letter", **options)
    connection = connect_postgres(url)
    connection.execute("SET synchronous_commit = off")
    connection.execute(table.replace("{text}", "text").encode())

    def run(cut: Cut) -> list[Any]:
        store = PostgresStore(sink, identity(), NoSpark())
        memory = f"atonce_deleted_{name}"
        there = connection.execute("SELECT to_regclass(%s)", (memory,)).fetchone() != (None,)
        connection.execute(f"TRUNCATE {name}{f', {memory}' if there else ''}".encode())
        for parts in cut:
            _one_batch_postgres(store, connection, parts, names)
        return sorted(connection.execute(f"SELECT * FROM {name}".encode()).fetchall())

    return run


def _one_batch_postgres(
    store: PostgresStore, connection: psycopg.Connection[Any], parts: list[list[Row]], names: Sequence[str]
) -> None:
    store.begin(connection)
    target = store.target(connection, schema(names))
    connection.execute(target.create_staging().encode())
    task, feed = copy_task(target, "", staged=True), Frames()
    for piece, number in pieces(parts, target.selected):
        task.send(feed, piece, number, 0)  # type: ignore[arg-type]
    with connection.cursor() as cursor, cursor.copy(copy_statement(target, task, staged=True)) as copy:
        for frame in (HEADER, *feed.data, TRAILER):
            copy.write(frame)
    store.merge_staged(connection, batch(), target)
    store.commit(connection)
