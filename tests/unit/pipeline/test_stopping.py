"""A signal is the ordinary end of a pipeline, whatever Python was doing when it came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from atonce.stopping import stopped_by_signals

INSIDE_A_TEXT = """
import os, signal, time
from atonce.stopping import stopped_by_signals

def main():
    with stopped_by_signals():
        exec("os.kill(os.getpid(), signal.SIG%s)\\ntime.sleep(60)")

main()
"""


def test_while_nothing_runs_yet_the_block_simply_ends() -> None:
    with stopped_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        raise AssertionError("it goes on")


def test_what_runs_is_asked_to_stop_as_often_as_it_is_signalled() -> None:
    asked: list[int] = []
    with stopped_by_signals() as stops:
        stops.append(lambda: asked.append(1))
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
    assert len(asked) == 2


def test_handlers_are_as_before_and_an_interrupt_of_others_is_theirs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stopped_by_signals():
        raise KeyboardInterrupt
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_signal_inside_a_text_that_is_executed_ends_with_exit_code_0(name: str) -> None:
    """Python would kill itself with SIGINT in the end, after all was handled."""
    done = subprocess.run(
        [sys.executable, "-c", INSIDE_A_TEXT % name], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
