"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atonce.config import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAYS = {
    "orders.py": "1000 orders published, 1000 rows in PostgreSQL, 1000 of them different",
    "payments.py": "total 124750, expected 124750",
    "outbox.py": "300 rows in the outbox; the topic ends at 301",
    "fan_out.py": "orders-us: 100 records",
    "structured_streaming.py": "200 rows, 200 of them different",
}


@pytest.mark.parametrize("name", SAYS)
def test_example_runs_and_says_what_it_should(name: str, scratch: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=scratch, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert SAYS[name] in done.stdout


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_pipeline_file_of_an_example_is_given_what_it_asks_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/shop")
    pipeline, _ = load(EXAMPLES / name)
    assert pipeline.verdict().allows(pipeline.level)
    assert "verdict     given" in pipeline.explain()
    assert f"`{name}`" in (text := (EXAMPLES / "README.md").read_text()) or f"examples/{name}" in text
