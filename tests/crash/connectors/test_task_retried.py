"""A task that dies after its first rows arrived, and that Spark runs again: no row of the first attempt is kept (F20)."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.contract.connectors.sql.database import Database, sqlite_at

SCRIPT = Path(__file__).with_name("retrying_job.py")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["postgres", pytest.param("sqlite", marks=pytest.mark.soak)])
def test_rows_of_a_task_that_was_killed_and_retried_are_there_once(
    kind: str, scratch: Path, request: pytest.FixtureRequest
) -> None:
    table = f"t_{uuid.uuid4().hex[:12]}"
    database = (
        sqlite_at(scratch)
        if kind == "sqlite"
        else Database(kind="postgres", where=request.getfixturevalue("postgres_url"))
    )
    marker = scratch / "died"
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), kind, database.where, table, str(marker)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    assert marker.exists(), "no task was killed"
    assert "aborted: " in ended.stdout and "attempts 2" in ended.stdout, ended.stdout
    assert database.ids(table) == list(range(100_000))
