"""Scratch directories go with the process that made them, whatever ended it; those of the living are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atonce.local import scratch as scratches
from atonce.local.scratch import MARK, scratch_directory, sweep

OWNER = """
import sys, time
from atonce.local.scratch import scratch_directory
print(scratch_directory("owned"), flush=True)
time.sleep(300)
"""
PARENT = """
import sys, time
from pathlib import Path
from atonce.local.child import Child
from atonce.local.scratch import scratch_directory
scratch = scratch_directory("leashed")
child = Child(["bash", "-c", "echo ready; sleep 300"], scratch=scratch)
child.wait_for_line("ready", 30)
(scratch / "data").write_text("much")
print(scratch, flush=True)
time.sleep(300)
"""


@pytest.fixture(autouse=True)
def temporary(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of its own for temporary files, so that the test sweeps nobody else's."""
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield scratch
    scratches._held.clear()


def started(program: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    place = Path(process.stdout.readline().strip())
    process.stdout.close()
    return process, place


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_directory_of_a_living_process_is_left_alone() -> None:
    process, place = started(OWNER)
    try:
        assert sweep() == []
        assert place.is_dir()
    finally:
        end(process)


def test_directory_of_a_killed_process_is_swept_by_the_next_one() -> None:
    process, place = started(OWNER)
    (place / "sub").mkdir()
    end(process)
    assert place.is_dir()
    mine = scratch_directory("next")
    assert not place.exists()
    assert mine.is_dir() and (mine / MARK).exists()


def test_ones_own_directory_is_never_swept() -> None:
    mine = scratch_directory("mine")
    assert sweep() == []
    assert mine.is_dir()


def test_directory_without_a_mark_is_somebody_elses(temporary: Path) -> None:
    other = temporary / "atonce-data"
    other.mkdir()
    (other / "precious").write_text("keep")
    assert sweep() == []
    assert (other / "precious").read_text() == "keep"


def test_mark_that_is_a_link_is_not_followed(temporary: Path) -> None:
    target = temporary / "target"
    target.write_text("")
    odd = temporary / "atonce-odd"
    odd.mkdir()
    (odd / MARK).symlink_to(target)
    assert sweep() == []
    assert odd.is_dir()


def test_leash_removes_the_scratch_of_a_parent_that_was_killed() -> None:
    """SIGKILL leaves the parent no time, so the leash of its child does it."""
    process, place = started(PARENT)
    assert (place / "data").exists()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while place.exists():
        assert time.monotonic() < deadline, f"{place} was left behind"
        time.sleep(0.02)


def test_scratch_stays_while_the_parent_lives_though_its_child_has_ended() -> None:
    from atonce.local.child import Child

    mine = scratch_directory("mine")
    with Child(["true"], scratch=mine) as child:
        child.wait(30)
    assert mine.is_dir()
