"""A shuffle that is lost in the middle of a batch, under transforms that put rows elsewhere the second time (F20)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("retried_stage_job.py")
ROOT = Path(__file__).parents[3]
ALL = list(range(40))


def run(servers: str, attempts: str, *scenarios: str) -> dict[str, dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), servers, attempts, *scenarios],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    found = {each["scenario"]: each for each in told}
    assert set(found) == set(scenarios)
    assert all(each["struck"] for each in found.values()), "nothing was lost"
    return found


@pytest.mark.parametrize(
    "attempts",
    [pytest.param("", id="a session of ours"), pytest.param("4", id="a session that runs stages again")],
)
def test_rows_that_a_second_computation_puts_elsewhere_are_neither_lost_nor_doubled(
    embedded: str, attempts: str
) -> None:
    """At most once may lose them, and does not double them either: what went out first is all that goes out."""
    kept = ("sqlite:effectively-once", "kafka-senders:effectively-once", "sqlite:at-least-once")
    found = run(embedded, attempts, *kept, "kafka-senders:at-most-once")
    for scenario in kept:
        assert found[scenario]["delivered"] == ALL, found[scenario]
        assert found[scenario]["told"], "no attempt failed"
    once = found["kafka-senders:at-most-once"]["delivered"]
    assert len(once) == len(set(once)), found
