"""The driver is SIGKILLed, and when it starts again what is around it has changed (F32, F33, F34, F35).

One victim process holds all pipelines at their steps at once, so that one kill tries them all.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic, delete_topic
from atonce.delivery.events import Step
from atonce.errors import RefusedError
from atonce.local.child import Child
from tests.contract.pipeline.parts import OUTPUTS, consume, produce
from tests.crash.pipeline.victim import PER_BATCH, folder, pipeline

FILES = [
    {"what": f"file-{step.value}", "sink": "kafka", "step": step, "source": "files"}
    for step in (Step.PLANNED, Step.COMMITTING, Step.DELIVERED)
]
CASES = [
    {"what": "restored", "sink": "sqlite", "step": Step.DELIVERED},
    {"what": "old-checkpoint", "sink": "sqlite", "step": Step.DELIVERED},
    {"what": "made-again", "sink": "kafka", "step": Step.OUTPUT_DONE},
    *FILES,
]
RECORDS = 2 * PER_BATCH
ALL = sorted(f"value {i}" for i in range(RECORDS))


@pytest.fixture(scope="module")
def killed(embedded: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, str]]]:
    """All cases, after the process that held each at a step of its second batch was killed."""
    scratch = tmp_path_factory.mktemp("around")
    cases = [{**case, "name": f"{case['what']}-{uuid.uuid4().hex[:6]}", "level": "effectively-once"} for case in CASES]
    with Cluster(embedded) as cluster:
        for case in cases:
            if case.get("source") == "files":
                write_files(folder(case, str(scratch)))
                continue
            create_topic(cluster, case["name"], partitions=2)
            produce(embedded, case["name"], range(RECORDS), partitions=2)
    told = json.dumps({"servers": embedded, "scratch": str(scratch), "cases": cases})
    command = [sys.executable, "-m", "tests.crash.pipeline.victim", told]
    with Child(command, cwd=Path(__file__).parents[3], log=scratch / "victim.log") as victim:
        victim.wait_for_line("held", timeout_s=300)
        victim.kill()
    return scratch, {case["what"]: case for case in cases}


def write_files(directory: Path) -> None:
    directory.mkdir()
    for number in range(2):
        lines = (f"value {i}" for i in range(number * PER_BATCH, (number + 1) * PER_BATCH))
        file = directory / f"part-{number}.txt"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))  # decades old, as `tar` leaves them


def delivered(case: dict[str, str], servers: str, scratch: Path) -> list[str]:
    return sorted(OUTPUTS[case["sink"]](case["name"], servers, scratch, "").values())


def test_database_that_was_restored_after_the_kill_is_resumed_from(killed: Any, embedded: str, spark: Any) -> None:
    """F33: batch 1 was delivered; the restored database holds batch 0 and the ledger that belongs to it."""
    scratch, cases = killed
    case = cases["restored"]
    table, half = case["name"].replace("-", "_"), PER_BATCH // 2
    with sqlite3.connect(scratch / f"{table}.db") as connection:
        connection.executemany(
            f"DELETE FROM out_{table} WHERE value = ?", [(f"value {i}",) for i in range(PER_BATCH, RECORDS)]
        )
        positions = json.dumps({f"{case['name']}/{p}": half for p in (0, 1)})
        connection.execute(
            "UPDATE atonce_ledger SET sequence = sequence - 1, batch_id = 0, positions = ?", (positions,)
        )
    assert len(delivered(case, embedded, scratch)) == PER_BATCH
    pipeline(case, embedded, str(scratch)).run(available_now=True)
    assert delivered(case, embedded, scratch) == ALL


def test_checkpoint_that_lost_its_newest_entries_with_the_kill_doubles_nothing(
    killed: Any, embedded: str, spark: Any
) -> None:
    """F35: the ledger holds batch 1, the checkpoint has not even noted batch 0."""
    scratch, cases = killed
    case = cases["old-checkpoint"]
    checkpoint = scratch / f"checkpoint-{case['name']}"
    for lost in ("offsets/1", "offsets/.1.crc", "commits/0", "commits/.0.crc"):
        (checkpoint / lost).unlink(missing_ok=True)
    pipeline(case, embedded, str(scratch)).run(available_now=True)
    assert delivered(case, embedded, scratch) == ALL


def test_input_that_was_made_again_after_the_kill_is_refused(killed: Any, embedded: str, spark: Any) -> None:
    """F32: refilled past the ledger's position, nothing but its id tells."""
    scratch, cases = killed
    case = cases["made-again"]
    with Cluster(embedded) as cluster:
        delete_topic(cluster, case["name"])
        create_topic(cluster, case["name"], partitions=2)
    produce(embedded, case["name"], range(5 * RECORDS), partitions=2)
    with pytest.raises(RefusedError, match="atonce reset"):
        pipeline(case, embedded, str(scratch)).run(available_now=True)
    assert len(consume(embedded, f"out-{case['name']}")) == PER_BATCH


@pytest.mark.parametrize("what", [case["what"] for case in FILES])
def test_files_are_published_once_each_and_a_changed_one_is_noticed_after_a_kill(
    killed: Any, embedded: str, spark: Any, what: str
) -> None:
    """F34: what was read is known by length and time, durable before anything was delivered."""
    scratch, cases = killed
    case = cases[what]
    pipeline(case, embedded, str(scratch)).run(available_now=True)
    assert delivered(case, embedded, scratch) == ALL
    with (folder(case, str(scratch)) / "part-0.txt").open("a") as file:
        file.write("one line more\n")
    with pytest.raises(RefusedError, match=r"part-0\.txt"):
        pipeline(case, embedded, str(scratch)).run(available_now=True)
    assert delivered(case, embedded, scratch) == ALL
