"""The driver is SIGKILLed, and when it starts again what is around it has changed (F32, F33, F34, F35).

One victim process for each broker holds all pipelines at their steps at once, so that one kill tries them all.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atonce.client.cluster import Cluster
from atonce.client.offsets import Committed, TopicPartition, commit, committed
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.errors import LedgerMismatch, RefusedError
from atonce.local.child import Child
from tests.contract.pipeline.parts import OUTPUTS, consume, produce
from tests.contract.pipeline.test_same_input import make
from tests.crash.pipeline.victim import PER_BATCH, folder, pipeline

Case = dict[str, Any]
BOTH = ("embedded", "apache_kafka")
CASES: list[Case] = [
    {"what": "restored", "sink": "sqlite", "step": Step.DELIVERED, "on": BOTH},
    {"what": "old-checkpoint", "sink": "sqlite", "step": Step.DELIVERED, "on": ("embedded",)},
    {"what": "old-checkpoint-kafka", "sink": "kafka", "step": Step.DELIVERED, "on": BOTH},
    {"what": "made-again", "sink": "kafka", "step": Step.OUTPUT_DONE, "on": BOTH},
    {"what": "set-back", "sink": "kafka", "step": Step.DELIVERED, "on": BOTH},
    {"what": "file-planned", "sink": "kafka", "step": Step.PLANNED, "source": "files", "on": ("embedded",)},
    {"what": "file-committing", "sink": "kafka", "step": Step.COMMITTING, "source": "files", "on": BOTH},
    {"what": "file-delivered", "sink": "kafka", "step": Step.DELIVERED, "source": "files", "on": ("embedded",)},
]
RECORDS = 2 * PER_BATCH
ALL = sorted(f"value {i}" for i in range(RECORDS))


@dataclass(frozen=True, slots=True)
class Killed:
    """All cases of one broker, after the process that held each at a step of its second batch was killed."""

    servers: str
    scratch: Path
    cases: dict[str, Case]

    def run(self, case: Case) -> None:
        pipeline(case, self.servers, str(self.scratch)).run(available_now=True)

    def delivered(self, case: Case) -> list[str]:
        return sorted(OUTPUTS[case["sink"]](case["name"], self.servers, self.scratch, "").values())


@pytest.fixture(scope="module")
def killed_on(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Killed]:
    made: dict[str, Killed] = {}

    def on(broker: str) -> Killed:
        if broker not in made:
            made[broker] = killed(broker, request.getfixturevalue(broker), tmp_path_factory.mktemp("around"))
        return made[broker]

    return on


def killed(broker: str, servers: str, scratch: Path) -> Killed:
    cases = [
        {**case, "name": f"{case['what']}-{uuid.uuid4().hex[:6]}", "level": "effectively-once"}
        for case in CASES
        if broker in case["on"]
    ]
    with Cluster(servers) as cluster:
        for case in cases:
            if case.get("source") == "files":
                write_files(folder(case, str(scratch)))
                continue
            create_topic(cluster, case["name"], partitions=2)
            produce(servers, case["name"], range(RECORDS), partitions=2)
    told = json.dumps({"servers": servers, "scratch": str(scratch), "cases": cases})
    command = [sys.executable, "-m", "tests.crash.pipeline.victim", told]
    with Child(command, cwd=Path(__file__).parents[3], log=scratch / "victim.log") as victim:
        victim.wait_for_line("held", timeout_s=300)
        victim.kill()
    return Killed(servers, scratch, {case["what"]: case for case in cases})


def write_files(directory: Path) -> None:
    directory.mkdir()
    for number in range(2):
        lines = (f"value {i}" for i in range(number * PER_BATCH, (number + 1) * PER_BATCH))
        file = directory / f"part-{number}.txt"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))  # decades old, as `tar` leaves them


def tried_on(prefix: str) -> Any:
    """Each case whose name begins so, on each of its brokers."""
    return pytest.mark.parametrize(
        ("broker", "what"),
        [(broker, case["what"]) for case in CASES if case["what"].startswith(prefix) for broker in case["on"]],
    )


Around = Callable[[str], Killed]


@tried_on("restored")
def test_database_that_was_restored_after_the_kill_is_resumed_from(
    killed_on: Around, spark: Any, broker: str, what: str
) -> None:
    """F33: batch 1 was delivered; the restored database holds batch 0 and the ledger that belongs to it."""
    around = killed_on(broker)
    case = around.cases[what]
    table, half = case["name"].replace("-", "_"), PER_BATCH // 2
    with sqlite3.connect(around.scratch / f"{table}.db") as connection:
        connection.executemany(
            f"DELETE FROM out_{table} WHERE value = ?", [(f"value {i}",) for i in range(PER_BATCH, RECORDS)]
        )
        positions = json.dumps({f"{case['name']}/{p}": half for p in (0, 1)})
        connection.execute(
            "UPDATE atonce_ledger SET sequence = sequence - 1, batch_id = 0, positions = ?", (positions,)
        )
    assert len(around.delivered(case)) == PER_BATCH
    around.run(case)
    assert around.delivered(case) == ALL


@tried_on("set-back")
def test_group_that_a_tool_set_back_after_the_kill_is_refused(
    killed_on: Around, spark: Any, broker: str, what: str
) -> None:
    """F33: the output on Kafka did not go back with it; batch 1 would come twice."""
    around = killed_on(broker)
    case = around.cases[what]
    places = [TopicPartition(case["name"], partition) for partition in (0, 1)]
    with Cluster(around.servers) as cluster:
        assert {each.offset for each in committed(cluster, case["name"], places).values()} == {PER_BATCH}
        commit(cluster, case["name"], {place: Committed(offset=PER_BATCH // 2) for place in places})
    with pytest.raises(LedgerMismatch, match=rf"{case['name']}/0 at {PER_BATCH // 2}.*atonce reset"):
        around.run(case)
    assert around.delivered(case) == ALL


@tried_on("old-checkpoint")
def test_checkpoint_that_lost_its_newest_entries_with_the_kill_doubles_nothing(
    killed_on: Around, spark: Any, broker: str, what: str
) -> None:
    """F35: the ledger holds batch 1, the checkpoint has not even noted batch 0."""
    around = killed_on(broker)
    case = around.cases[what]
    checkpoint = around.scratch / f"checkpoint-{case['name']}"
    for lost in ("offsets/1", "offsets/.1.crc", "commits/0", "commits/.0.crc"):
        (checkpoint / lost).unlink(missing_ok=True)
    around.run(case)
    assert around.delivered(case) == ALL


@tried_on("made-again")
def test_input_that_was_made_again_after_the_kill_is_refused(
    killed_on: Around, spark: Any, broker: str, what: str
) -> None:
    """F32: refilled past the ledger's position, nothing but its id tells."""
    around = killed_on(broker)
    case = around.cases[what]
    make(around.servers, case["name"])
    produce(around.servers, case["name"], range(5 * RECORDS), partitions=2)
    with pytest.raises(RefusedError, match="atonce reset"):
        around.run(case)
    assert len(consume(around.servers, f"out-{case['name']}")) == PER_BATCH


@tried_on("file-")
def test_files_are_published_once_each_and_a_changed_one_is_noticed_after_a_kill(
    killed_on: Around, spark: Any, broker: str, what: str
) -> None:
    """F34: what was read is known by length and time, durable before anything was delivered."""
    around = killed_on(broker)
    case = around.cases[what]
    around.run(case)
    assert around.delivered(case) == ALL
    with (folder(case, str(around.scratch)) / "part-0.txt").open("a") as file:
        file.write("one line more\n")
    with pytest.raises(RefusedError, match=r"part-0\.txt"):
        around.run(case)
    assert around.delivered(case) == ALL
