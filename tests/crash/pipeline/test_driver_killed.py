"""The driver is SIGKILLed between any two steps of a delivery, and started again (F1, F2, F6, F7, F8; S4 to S7, S18, S24).

One victim process holds many pipelines at their steps at once, so that one kill tries them all.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from atonce.client.cluster import Cluster
from atonce.client.offsets import committed
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from atonce.local.child import Child
from tests.contract.pipeline.parts import OUTPUTS, produce
from tests.crash.pipeline.victim import pipeline

ONE_COMMIT = (
    Step.PLANNED,
    Step.OUTPUT_BEGUN,
    Step.OUTPUT_DONE,
    Step.PROGRESS_DONE,
    Step.COMMITTING,
    Step.COMMITTED,
    Step.DELIVERED,
)
FAST_TIMER_MS, SLOW_TIMER_MS = "50", "3600000"
CASES = [
    # First, so that the fast timer has long fired when the last one is held.
    (Guarantee.NONE, "kafka", Step.OUTPUT_BEGUN, FAST_TIMER_MS),
    (Guarantee.NONE, "kafka", Step.OUTPUT_DONE, SLOW_TIMER_MS),
    *[(Guarantee.EFFECTIVELY_ONCE, "kafka", step, "") for step in ONE_COMMIT],
    *[(Guarantee.EFFECTIVELY_ONCE, "sqlite", step, "") for step in (Step.OUTPUT_DONE, Step.COMMITTED)],
    *[(Guarantee.AT_MOST_ONCE, "kafka", step, "") for step in (Step.PROGRESS_DONE, Step.DELIVERED)],
    *[(Guarantee.AT_LEAST_ONCE, "kafka", step, "") for step in (Step.OUTPUT_DONE, Step.DELIVERED)],
]
RECORDS = 40


@pytest.fixture(
    params=[
        "protocol-2",
        "embedded_v1",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("kafka_3_9", "kafka_3_9_unverified", "kafka_4_3_v1")),
    ]
)
def embedded(request: pytest.FixtureRequest, embedded: str) -> str:
    """The same kills on brokers of both transaction protocols."""
    return embedded if request.param == "protocol-2" else str(request.getfixturevalue(request.param))


@pytest.fixture
def killed(embedded: str, scratch: Path) -> list[dict[str, str]]:
    """All cases, after the process that held them at their steps was killed."""
    cases = [
        {
            "name": f"kill-{level.value}-{sink}-{step.value}-{uuid.uuid4().hex[:6]}",
            "level": level,
            "sink": sink,
            "step": step,
            "timer_ms": timer_ms,
        }
        for level, sink, step, timer_ms in CASES
    ]
    with Cluster(embedded) as cluster:
        for case in cases:
            create_topic(cluster, case["name"], partitions=2)
            produce(embedded, case["name"], range(RECORDS), partitions=2)
    told = json.dumps({"servers": embedded, "scratch": str(scratch), "cases": cases})
    with Child(
        [sys.executable, "-m", "tests.crash.pipeline.victim", told],
        cwd=Path(__file__).parents[3],
        log=scratch / "victim.log",
    ) as victim:
        victim.wait_for_line("held", timeout_s=600)
        wait_for_the_timer(embedded, cases[0]["name"])
        victim.kill()
    return cases


def wait_for_the_timer(servers: str, group: str) -> None:
    """Until the group's offsets say that all input was dealt with, although the output is held."""
    deadline = time.monotonic() + 60
    with Cluster(servers) as cluster:
        while sum(max(0, found.offset) for found in committed(cluster, group, require_stable=True).values()) < RECORDS:
            assert time.monotonic() < deadline, "the timer has not fired"


@pytest.mark.timeout(900)
def test_driver_killed_at_every_step_keeps_its_guarantee(
    killed: list[dict[str, str]], embedded: str, scratch: Path, spark: Any
) -> None:
    wrong = []
    for case in killed:
        pipeline(case, embedded, str(scratch)).run(available_now=True)
        make = OUTPUTS[case["sink"]]
        seen = Counter(make(case["name"], embedded, scratch, "").values())
        lost = sum(1 for i in range(RECORDS) if not seen[f"value {i}"])
        doubled = sum(count - 1 for count in seen.values())
        expected = (0, 0)
        if case["level"] == Guarantee.AT_MOST_ONCE and case["step"] == Step.PROGRESS_DONE:
            expected = (20, 0)  # F6: progress was recorded, the output never written
        if case["level"] == Guarantee.AT_LEAST_ONCE and case["step"] == Step.OUTPUT_DONE:
            expected = (0, 20)  # F7: the output was written, progress never recorded
        if case["timer_ms"] == FAST_TIMER_MS:
            expected = (20, 0)  # F8: the timer fired before the output was written
        if case["timer_ms"] == SLOW_TIMER_MS:
            expected = (0, 40)  # F8: both batches were written, and the timer had never fired
        if (lost, doubled) != expected:
            wrong.append(f"{case['name']}: lost {lost}, doubled {doubled}, expected {expected}")
    assert not wrong
