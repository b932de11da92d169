"""A process may run pipelines for ever: what a run opens, it closes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["kafka", "sqlite"])
def test_a_run_leaves_no_descriptor_and_no_thread_behind(kind: str, embedded: str, scratch: Path) -> None:
    words = [sys.executable, "-m", "tests.contract.pipeline.descriptors", kind, embedded, str(scratch)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}
