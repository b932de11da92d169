"""Children die with their parent, whatever kills the parent, and take their own children along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from atonce.local.child import Child, ChildFailed
from atonce.local.ports import free_ports


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


PARENT = """
import sys, time
from atonce.local.child import Child
child = Child(["bash", "-c", "setsid sleep 300 & echo ready $!; wait"])
print(child.wait_for_line("ready", 30), child.pid, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_and_grandchild_end_when_the_parent_is_killed(number: int) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    _, grandchild, child = parent.stdout.readline().split()
    os.kill(parent.pid, number)
    parent.wait()
    parent.stdout.close()
    assert gone(int(child))
    assert gone(int(grandchild)), "a grandchild with a session of its own must not escape"


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.01, 0.02, 0.03, 0.05])
@pytest.mark.parametrize("way", ["kill", "stop", "signal"])
def test_child_that_has_hardly_begun_ends_as_well(way: str, delay_s: float) -> None:
    """The leash may not have started the command yet; nobody may then wait for a command that was never told to end."""
    began = time.monotonic()
    with Child(["sleep", "300"]) as child:
        leash = child.leash_pid
        while time.monotonic() - began < delay_s:
            pass
        if way == "signal":
            child.send_signal(signal.SIGKILL)
            child.wait(20)
        else:
            getattr(child, way)()
    assert gone(leash)
    assert time.monotonic() - began < 8, "the signal was lost, and only the end of the grace period helped"


def test_stop_ends_everything_the_command_started() -> None:
    with Child(["bash", "-c", "setsid sleep 300 & echo ready $!; wait"]) as child:
        grandchild = int(child.wait_for_line("ready", 30).split()[1])
    assert gone(grandchild)


def test_command_that_ends_early_is_reported_with_its_last_words(scratch: Path) -> None:
    with Child(["bash", "-c", "echo no such luck >&2; exit 7"], log=scratch / "log") as child:
        with pytest.raises(ChildFailed, match=r"(?s)ended with code 7.*no such luck"):
            child.wait_for_line("ready", 30)


def test_command_that_does_not_exist_is_reported() -> None:
    with Child(["no-such-command"]) as child:
        with pytest.raises(ChildFailed, match="ended with code 127"):
            child.wait_for_line("ready", 30)


def test_free_ports_are_distinct() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8


def test_a_child_is_told_line_by_line_until_it_ends() -> None:
    program = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)"
    with Child([sys.executable, "-c", program], listens=True) as child:
        for word in ("one", "two"):
            child.tell(word)
            assert child.wait_for_line("heard", 30) == f"heard {word}"
        child.kill()
        with pytest.raises(ChildFailed, match="does not listen any more"):
            child.tell("three")


def test_a_child_that_was_not_to_be_told_says_so() -> None:
    with Child(["sleep", "300"]) as child, pytest.raises(ChildFailed, match="standard input"):
        child.tell("anything")
