from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.connectors.sql.database import Database, duckdb_at, sqlite_at


@pytest.fixture(params=["postgres", "sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, scratch: Path) -> Database:
    """The same test on every database."""
    return _database(request, scratch)


@pytest.fixture(params=["postgres", "sqlite"])
def collating(request: pytest.FixtureRequest, scratch: Path) -> Database:
    """Those whose keys may have a collation."""
    return _database(request, scratch)


def _database(request: pytest.FixtureRequest, scratch: Path) -> Database:
    if request.param == "sqlite":
        return sqlite_at(scratch)
    if request.param == "duckdb":
        return duckdb_at(scratch)
    return Database(kind="postgres", where=request.getfixturevalue("postgres_url"))


@pytest.fixture
def postgres(postgres_url: str) -> Database:
    return Database(kind="postgres", where=postgres_url)


@pytest.fixture
def sqlite(scratch: Path) -> Database:
    return sqlite_at(scratch)


@pytest.fixture
def duck(scratch: Path) -> Database:
    return duckdb_at(scratch)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> str:
    """A table name of the test's own: tests share one PostgreSQL."""
    import uuid

    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ten(spark: Any) -> Any:
    """Batch N holds the ids 10 N to 10 N + 9, in two partitions."""

    def made(number: int) -> Any:
        ids = spark.range(number * 10, number * 10 + 10, 1, 2)
        return ids.selectExpr("id", "concat('body ', id) AS body")

    return made
