"""Every sink behind one face, so that one body of tests can hold all of them to the contract."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

import atonce
from atonce.delivery.abilities import as_sink
from tests.contract.pipeline.parts import consume


class System(Protocol):
    """Somewhere to write the ids of `rows`, and what a reader finds there."""

    def sink(self, name: str) -> Any: ...

    def rows(self, df: Any) -> Any:
        """`df` has ids; what this sink takes for them."""

    def ids(self, name: str) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class KafkaSystem:
    servers: str
    unverified_transactions: str = "refuse"

    def sink(self, name: str) -> Any:
        return as_sink(atonce.Kafka(name, servers=self.servers, unverified_transactions=self.unverified_transactions))

    def rows(self, df: Any) -> Any:
        return df.selectExpr("CAST(id AS STRING) AS key", "concat('body ', id) AS value")

    def ids(self, name: str) -> list[int]:
        return sorted(int(key or -1) for key, _ in consume(self.servers, name))


@dataclass(frozen=True, slots=True)
class PostgresSystem:
    url: str

    def sink(self, name: str) -> Any:
        return atonce.Postgres(self.url, table=name, create=True)

    def rows(self, df: Any) -> Any:
        return df.selectExpr("id", "concat('body ', id) AS value")

    def ids(self, name: str) -> list[int]:
        import psycopg

        with psycopg.connect(self.url) as connection:
            if connection.execute("SELECT to_regclass(%s)", (name,)).fetchone() == (None,):
                return []
            return sorted(row[0] for row in connection.execute(f"SELECT id FROM {name}".encode()))


@dataclass(frozen=True, slots=True)
class SqliteSystem:
    file: Path

    def sink(self, name: str) -> Any:
        return atonce.SQLite(self.file, table=name)

    def rows(self, df: Any) -> Any:
        return df.selectExpr("id", "concat('body ', id) AS value")

    def ids(self, name: str) -> list[int]:
        with sqlite3.connect(self.file) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchall():
                return []
            return sorted(row[0] for row in connection.execute(f"SELECT id FROM {name}"))


@dataclass(frozen=True, slots=True)
class DuckSystem:
    file: Path

    def sink(self, name: str) -> Any:
        return atonce.DuckDB(self.file, table=name)

    def rows(self, df: Any) -> Any:
        return df.selectExpr("id", "concat('body ', id) AS value")

    def ids(self, name: str) -> list[int]:
        import duckdb

        with duckdb.connect(str(self.file)) as connection:
            if not connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", (name,)).fetchall():
                return []
            return sorted(row[0] for row in connection.execute(f"SELECT id FROM {name}").fetchall())


@dataclass(frozen=True, slots=True)
class DeltaSystem:
    folder: Path

    def sink(self, name: str) -> Any:
        return atonce.Delta(self.folder / name)

    def rows(self, df: Any) -> Any:
        return df.selectExpr("id", "concat('body ', id) AS value")

    def ids(self, name: str) -> list[int]:
        from deltalake import DeltaTable

        path = str(self.folder / name)
        if not DeltaTable.is_deltatable(path):
            return []
        return sorted(DeltaTable(path).to_pyarrow_table().column("id").to_pylist())


@dataclass(frozen=True, slots=True)
class IcebergSystem:
    folder: Path

    @property
    def catalog(self) -> dict[str, str]:
        uri = f"sqlite:///{self.folder}/catalog.db"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{self.folder}/warehouse"}

    def sink(self, name: str, **options: Any) -> Any:
        return atonce.Iceberg(f"shop.{name}", self.catalog, **options)

    def rows(self, df: Any) -> Any:
        return df.selectExpr("id", "concat('body ', id) AS value")

    def table(self, name: str) -> Any:
        """By the library alone, as somebody else would."""
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.catalog).load_table(f"shop.{name}")

    def read(self, name: str) -> list[dict[str, Any]]:
        from atonce.connectors.lake.iceberg.verified import IcebergRows

        return [dict(row) for row in IcebergRows(self.folder / "catalog.db", f"shop.{name}").rows()]

    def ids(self, name: str) -> list[int]:
        return sorted(row["id"] for row in self.read(name))


SYSTEMS: dict[str, Callable[[pytest.FixtureRequest], System]] = {
    "kafka": lambda request: KafkaSystem(request.getfixturevalue("embedded")),
    "kafka-protocol-1": lambda request: KafkaSystem(request.getfixturevalue("embedded_v1")),
    "kafka-3.9": lambda request: KafkaSystem(request.getfixturevalue("kafka_3_9")),
    "kafka-3.9-unverified": lambda request: KafkaSystem(request.getfixturevalue("kafka_3_9_unverified"), "allow"),
    "kafka-4.3-v1": lambda request: KafkaSystem(request.getfixturevalue("kafka_4_3_v1")),
    "postgres": lambda request: PostgresSystem(request.getfixturevalue("postgres_url")),
    "sqlite": lambda request: SqliteSystem(request.getfixturevalue("scratch") / "out.db"),
    "duckdb": lambda request: DuckSystem(request.getfixturevalue("scratch") / "out.duckdb"),
    "delta": lambda request: DeltaSystem(request.getfixturevalue("scratch")),
    "iceberg": lambda request: IcebergSystem(request.getfixturevalue("scratch")),
}


def fresh_name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"
