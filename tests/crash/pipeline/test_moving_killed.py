"""SIGKILL while a checkpoint is adopted, and between the steps of a backfill; then the same again."""

from __future__ import annotations

import json
import sqlite3
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.errors import LedgerMismatch
from atonce.local.child import Child
from atonce.spark.checkpoint import left
from tests.contract.pipeline.parts import produce
from tests.crash.pipeline.moving_victim import checkpoint, pipeline

BEFORE, ALL = 40, 60
STEPS = (Step.OUTPUT_DONE, Step.COMMITTED)


@pytest.fixture
def killed(embedded: str, scratch: Path, spark: Any) -> dict[str, Any]:
    """Everything stands still at once, and one kill ends all of it. Backfills are beside pipelines that began at 40."""
    names = {word: f"{word}-{uuid.uuid4().hex[:6]}" for word in ("before", "after", *STEPS)}
    for name in names.values():
        with Cluster(embedded) as cluster:
            create_topic(cluster, name, partitions=2)
        produce(embedded, name, range(BEFORE), partitions=2)
    for step in STEPS:
        live = pipeline(names[step], embedded, scratch, start="latest")
        live.run(available_now=True)
        produce(embedded, names[step], range(BEFORE, ALL), partitions=2)
    for word in ("before", "after"):
        folder = Path(checkpoint(names[word], scratch))
        for kind, text in (("offsets", json.dumps({names[word]: {"0": 7, "1": 5}})), ("commits", '{"a":0}')):
            (folder / kind).mkdir(parents=True)
            (folder / kind / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{text}')
    told = {
        "servers": embedded,
        "scratch": str(scratch),
        "backfills": {names[step]: step.value for step in STEPS},
        "before": names["before"],
        "after": names["after"],
    }
    command = [sys.executable, "-m", "tests.crash.pipeline.moving_victim", json.dumps(told)]
    with Child(command, cwd=Path(__file__).parents[3], log=scratch / "victim.log") as victim:
        victim.wait_for_line("held 4", timeout_s=600)
        victim.kill()
    return names


def values(name: str, scratch: Path) -> list[int]:
    with sqlite3.connect(scratch / f"{name}.db") as connection:
        return sorted(int(value.split()[1]) for (value,) in connection.execute("SELECT value FROM out"))


@pytest.mark.timeout(900)
def test_what_was_killed_while_moving_is_exact_when_it_is_done_again(
    killed: dict[str, Any], embedded: str, scratch: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left, "QUIET_S", 0.0)
    for step in STEPS:
        live = pipeline(killed[step], embedded, scratch, start="latest")
        live.backfill(f"{live.name}-history").run()
        live.run(available_now=True)
        assert values(live.name, scratch) == list(range(ALL)), step
    adopted = pipeline(killed["before"], embedded, scratch)
    adopted.adopt(checkpoint(adopted.name, scratch))
    recorded = pipeline(killed["after"], embedded, scratch)
    with pytest.raises(LedgerMismatch, match="it was adopted, and has not run since"):
        recorded.adopt(checkpoint(recorded.name, scratch))
    for each in (adopted, recorded):
        each.run(available_now=True)
        assert values(each.name, scratch) == sorted([*range(14, BEFORE, 2), *range(11, BEFORE, 2)])
