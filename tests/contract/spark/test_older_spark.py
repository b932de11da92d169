"""A short part of test_reach.py on the Spark that managed platforms run, in an environment of its own.

All of it, and on the other versions: `make matrix`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from atonce.spark.versions import spark_version

ROOT = Path(__file__).resolve().parents[3]
CHOSEN = "(each_level and effectively) or test_state or test_deliver or test_a_pipeline"


@pytest.mark.soak
@pytest.mark.skipif(spark_version() < (4, 3), reason="begun from the newest")
@pytest.mark.timeout(600)
def test_pipelines_state_and_deliver_work_on_spark_4_0() -> None:
    python = subprocess.run([ROOT / "scripts/spark", "4.0"], check=True, capture_output=True, text=True).stdout.strip()
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-k", CHOSEN, "tests/contract/spark/test_reach.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and " 3 passed" in f" {done.stdout.splitlines()[-1]}", done.stdout[-3000:]
