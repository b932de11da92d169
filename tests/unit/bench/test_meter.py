"""The meter counts a whole process tree, children that have ended included."""

from __future__ import annotations

import os
import sys
import time

from bench.copy import Work, figures
from bench.judge import NotDelivered, Point
from bench.meter import Meter

from atonce.local.child import Child

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


def test_cpu_of_a_child_process_that_has_ended_is_still_counted() -> None:
    """A contestant's Python workers come and go; what they used must not be lost."""
    program = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {BURN.format(seconds=0.6)!r}])\n"
        "print('burnt', flush=True)\n"
        "time.sleep(30)\n"
    )
    with Child([sys.executable, "-c", program]) as child:
        meter = Meter([child.leash_pid]).start()
        begin = time.monotonic()
        child.wait_for_line("burnt", 30)
        seen = time.monotonic()
        while meter.cost(begin, time.monotonic()).cpu_s < 0.55 and time.monotonic() < seen + 5:
            time.sleep(0.05)
        meter.stop()
        cost = meter.cost(begin, time.monotonic())
        child.kill()
    assert 0.55 <= cost.cpu_s < 3.0
    assert cost.peak_mb > 1 or cost.elapsed_s < 1.5


def test_processes_beside_the_contestants_own_are_counted_as_its_cost() -> None:
    """A cluster is started before the contestant that runs on it, and not by it."""
    program = BURN.format(seconds=0.6) + "print('burnt', flush=True)\ntime.sleep(30)\n"
    with Child([sys.executable, "-c", "import time; time.sleep(30)"]) as child:
        meter = Meter([child.leash_pid]).start()
        with Child([sys.executable, "-c", program]) as cluster:
            both = Meter([child.leash_pid, cluster.leash_pid]).start()
            begin = time.monotonic()
            cluster.wait_for_line("burnt", 30)
            while both.cost(begin, time.monotonic()).cpu_s < 0.5 and time.monotonic() < begin + 30:
                time.sleep(0.05)
            both.stop()
            meter.stop()
            end = time.monotonic()
        assert both.cost(begin, end).cpu_s >= 0.5
        assert meter.cost(begin, end).cpu_s < 0.2


def test_a_sleeping_process_costs_next_to_nothing() -> None:
    with Child([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(30)"]) as child:
        child.wait_for_line("up", 30)
        meter = Meter([child.leash_pid]).start()
        begin = time.monotonic()
        while time.monotonic() < begin + 0.6:
            time.sleep(0.1)
        meter.stop()
        assert meter.cost(begin, time.monotonic()).cpu_s < 0.2
        child.kill()


def test_rate_is_taken_from_the_end_of_the_warm_up_to_the_last_step() -> None:
    meter = Meter([os.getpid()]).start()
    meter.stop()
    work = Work(servers="", source="", partitions=1, records=400, warm=100, size=50, per_batch=0)
    steps = [Point(0.0, 0), Point(10.0, 100), Point(11.0, 300), Point(12.0, 400)]
    found = figures(work, steps, meter, 400).figures
    assert found["records/s"] == 150.0
    assert found["MB/s"] == 150.0 * 50 / 1e6
    assert found["delivered twice"] == 0


def test_a_single_step_has_no_rate_and_says_what_to_change() -> None:
    meter = Meter([os.getpid()]).start()
    meter.stop()
    work = Work(servers="", source="", partitions=1, records=100, warm=50, size=50, per_batch=0)
    try:
        figures(work, [Point(0.0, 0), Point(5.0, 100)], meter, 100)
    except NotDelivered as error:
        assert "--records" in str(error)
    else:
        raise AssertionError("one step was taken for a rate")
