"""The examples run as they are."""

from __future__ import annotations

import ast
import json
import os
import re
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
    "dead_letters.py": "100 orders, 100 of them different, 3 of them replayed",
    "cdc.py": "the same as in the database",
    "structured_streaming.py": "200 rows, 200 of them different",
    "json_orders.py": "100 orders, 300 items, quantity 600",
    "windows.py": "5 minutes are over, 150 clicks in them",
    "join.py": "unknown: 30, NO: 60, PT: 30",
    "udf.py": "50 cards, the first is ••••••••••••0000, the last ••••••••••••0049",
    "backfill.py": "500 orders, 500 of them different",
    "pandas_udf.py": "200 readings from 0.0 to 199.0 degrees Celsius",
}
NEEDS_PANDAS = "pandas_udf.py"
COOKBOOK = EXAMPLES.parent / "docs" / "cookbook"


def says(program: Path, words: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert words in done.stdout


@pytest.mark.parametrize("name", [name for name in SAYS if name != NEEDS_PANDAS])
def test_example_runs_and_says_what_it_should(name: str, scratch: Path) -> None:
    says(EXAMPLES / name, SAYS[name], scratch)


@pytest.mark.soak
def test_example_with_pandas_runs_and_says_what_it_should(scratch: Path) -> None:
    """With pandas from where long tests have it: what all other tests run without it."""
    pinned = EXAMPLES.parent / "tests" / "requirements-soak.txt"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--target", str(scratch / "packages"), "-r", str(pinned)], check=True, timeout=600)
    says(EXAMPLES / NEEDS_PANDAS, SAYS[NEEDS_PANDAS], scratch, PYTHONPATH=str(scratch / "packages"))


def test_cells_of_the_notebook_run_one_after_the_other(scratch: Path) -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    program = scratch / "cells.py"
    program.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    says(program, "600 orders, 600 of them different", scratch)


def test_examples_use_public_names_alone() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    sources = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    sources["notebook.ipynb"] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            found = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            private = [each for each in found if each.startswith("atonce.") and each != "atonce.testing"]
            assert not private, f"{name} imports {private[0]}"


def test_what_the_cookbook_shows_of_an_example_stands_in_it() -> None:
    pages = sorted(COOKBOOK.glob("*.md"))
    assert pages
    shown = set()
    for page in pages:
        for name, code in re.findall(r"^```python no-run example=(\S+)\n(.*?)^```$", page.read_text(), re.M | re.S):
            shown.add(name)
            assert code.strip() in (EXAMPLES / name).read_text(), f"{page.name}: {name} has other code"
    for page in ("cdc.md", "dead-letters.md"):  # pages with pipelines of their own, which run
        shown |= set(re.findall(r"examples/(\w+\.py)", (COOKBOOK.parent / "how-to" / page).read_text()))
    assert set(SAYS) - shown <= {"orders.py", "payments.py", "outbox.py", "fan_out.py", "structured_streaming.py"}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_pipeline_file_of_an_example_is_given_what_it_asks_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/shop")
    pipeline, _ = load(EXAMPLES / name)
    assert pipeline.verdict().allows(pipeline.level)
    assert "verdict     given" in pipeline.explain()
    assert f"`{name}`" in (text := (EXAMPLES / "README.md").read_text()) or f"examples/{name}" in text
