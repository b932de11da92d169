"""A whole pipeline in one process, seed after seed: nothing is lost, doubled, torn or reordered beyond its level.

Seeds come from the commit, so that a commit's run can be repeated; `make soak ONLY=simulation` takes fresh ones, for
ATONCE_SIMULATE_S seconds. A seed that fails is told with the command that plays it again, shortened.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
SECONDS = 60.0
SOAK_S = float(os.environ.get("ATONCE_SIMULATE_S", "600"))


def simulated(
    *options: str, timeout_s: float | None, module: str = "tests.simulation.pipeline"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *options]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s)


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or "no commit"


@pytest.mark.timeout(280)
def test_no_seed_of_this_commit_shows_an_anomaly() -> None:
    done = simulated("--seconds", str(SECONDS), "--first", commit(), timeout_s=260)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.timeout(200)
def test_a_seed_decides_everything() -> None:
    one, other = (simulated("--seed", "7", timeout_s=90).stdout for _ in range(2))
    assert one == other
    assert len(one.splitlines()) > 20


@pytest.mark.timeout(280)
@pytest.mark.parametrize("mutant", ["aborted-is-input", "batch-ids-alone", "sql-two-commits"])
def test_a_planted_error_is_caught(mutant: str) -> None:
    done = simulated("--mutant", mutant, "--batches", "3000", "--seconds", "200", "--first", "bites", timeout_s=260)
    assert done.returncode == 1, done.stdout + done.stderr[-2000:]


# Long


def odometer(folder: Path) -> str:
    """What the runs did, for `scripts/odometer.py`."""
    return os.environ.get("ATONCE_SIMULATE_OUT", str(folder / "odometer.jsonl"))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_fresh_seeds_show_no_anomaly(tmp_path: Path) -> None:
    options = ("--seconds", str(SOAK_S), "--out", odometer(tmp_path))
    with ThreadPoolExecutor(2) as both:  # a process for each of two cores
        done = list(both.map(lambda _: simulated(*options, timeout_s=2 * SOAK_S + 600), range(2)))
    assert [each.returncode for each in done] == [0, 0], "\n".join(each.stdout + each.stderr[-2000:] for each in done)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_planted_error_is_caught_within_10000_batches(tmp_path: Path) -> None:
    options = ("--mutants", "--batches", "10000", "--seconds", "3600", "--out", odometer(tmp_path))
    done = simulated(*options, timeout_s=None)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_model_of_spark_does_what_spark_does() -> None:
    done = simulated("0", "200", module="tests.simulation.pipeline.held_against", timeout_s=None)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_simulation_copies_no_class_of_the_program() -> None:
    """What it runs is imported: a copy would drift away from the code that it stands for."""

    def classes(folder: Path) -> set[str]:
        return {
            node.name
            for file in folder.rglob("*.py")
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ClassDef)
        }

    assert not classes(HERE) & classes(ROOT / "src")
