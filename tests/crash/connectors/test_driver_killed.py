"""SIGKILL of the driver at every moment of a delivery into a database or a table of files: both writes or neither (F6, F7, F22, S14, S18)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.contract.connectors.sql.database import Database, batch, duckdb_at, identity, progress, sqlite_at
from tests.contract.connectors.systems import DeltaSystem, IcebergSystem

SCRIPT = Path(__file__).with_name("doomed_driver.py")
ROOT = Path(__file__).parents[3]
SOAK = pytest.mark.soak
MOMENTS = [
    pytest.param("postgres", "rows-arriving", False, marks=SOAK),
    pytest.param("postgres", "output-done", False, marks=SOAK),
    pytest.param("postgres", "progress-done", False, marks=SOAK),
    pytest.param("postgres", "committing", False),
    pytest.param("postgres", "committed", True, marks=SOAK),
    pytest.param("sqlite", "rows-arriving", False, marks=SOAK),
    pytest.param("sqlite", "committing", False),
    pytest.param("sqlite", "committed", True, marks=SOAK),
    pytest.param("duckdb", "rows-arriving", False, marks=SOAK),
    pytest.param("duckdb", "committing", False),
    pytest.param("duckdb", "committed", True, marks=SOAK),
    pytest.param("delta", "output-done", False, marks=SOAK),
    pytest.param("delta", "progress-done", False, marks=SOAK),
    pytest.param("delta", "committing", False),
    pytest.param("delta", "sent", True, marks=SOAK),
    pytest.param("delta", "committed", True, marks=SOAK),
    pytest.param("iceberg", "output-done", False, marks=SOAK),
    pytest.param("iceberg", "progress-done", False, marks=SOAK),
    pytest.param("iceberg", "committing", False, marks=SOAK),
    pytest.param("iceberg", "sent", True),
    pytest.param("iceberg", "committed", True, marks=SOAK),
]


@pytest.mark.parametrize(("kind", "moment", "is_in"), MOMENTS)
def test_killed_driver_leaves_both_writes_or_neither(
    kind: str, moment: str, is_in: bool, scratch: Path, request: pytest.FixtureRequest, spark: Any
) -> None:
    table = f"t_{uuid.uuid4().hex[:12]}"
    files = {"sqlite": sqlite_at, "duckdb": duckdb_at}
    database: Any
    lakes = {"delta": DeltaSystem, "iceberg": IcebergSystem}
    if kind in lakes:
        where, database = str(scratch), lakes[kind](scratch)
    else:
        server = (
            Database(kind="postgres", where=request.getfixturevalue("postgres_url")) if kind == "postgres" else None
        )
        database = server or files[kind](scratch)
        where = database.where
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), kind, where, table, moment, "local[2]"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stdout + ended.stderr[-2000:]
    who = identity(table)
    sink = database.sink(table).open(who, spark)
    recorded = sink.claim()
    assert recorded is not None and recorded.batch_id == (1 if is_in else 0)
    assert database.ids(table) == list(range(20 if is_in else 10))
    if not is_in:
        again = spark.range(10, 20, 1, 2).selectExpr("id", "'x' AS body")
        sink.output_and_progress(batch(again, 1), progress(who, 1))
    assert database.ids(table) == list(range(20))
    sink.close()
