"""A driver that gets killed: runs the pipelines it is told, each held at one step of its second batch, until SIGKILL.

Run as a script with one JSON argument. Prints `held N` when all N pipelines stand at their steps.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import atonce
from atonce.delivery.events import Event
from atonce.spark.session import session
from tests.contract.pipeline.parts import OUTPUTS

PER_BATCH = 20


def pipeline(case: dict[str, str], servers: str, scratch: str) -> atonce.Pipeline:
    """The same for the victim and for the recovery."""
    make = OUTPUTS[case["sink"]]
    sink = make(case["name"], servers, Path(scratch), "").sink
    if isinstance(sink, atonce.Kafka):
        sink = replace(sink, unverified_transactions="allow")
    if case.get("timer_ms"):
        sink = replace(sink, auto_commit_interval_ms=int(case["timer_ms"]))
    source: Any = atonce.Kafka(case["name"], servers=servers, options={"maxOffsetsPerTrigger": str(PER_BATCH)})
    transform = "SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input"
    if case.get("source") == "files":
        source = atonce.Files(folder(case, scratch), format="text", options={"maxFilesPerTrigger": "1"})
        transform = "SELECT value FROM input"
    return (
        atonce.Pipeline(case["name"], case["level"], checkpoint=str(Path(scratch) / f"checkpoint-{case['name']}"))
        .read(source)
        .transform(transform)
        .write(sink)
    )


def folder(case: dict[str, str], scratch: str) -> Path:
    """Where a pipeline that reads files finds them, one a batch."""
    return Path(scratch) / f"files-{case['name']}"


class Hold:
    """Stops the pipeline at a step of its second batch, for good."""

    def __init__(self, step: str, held: threading.Semaphore) -> None:
        self._step, self._held = step, held

    def on_event(self, event: Event) -> None:
        if event.batch_id == 1 and event.step == self._step:
            self._held.release()
            threading.Event().wait()


def main() -> None:
    told = json.loads(sys.argv[1])
    session("local[2]")
    held = threading.Semaphore(0)
    for case in told["cases"]:
        run = replace(pipeline(case, told["servers"], told["scratch"]), observer=Hold(case["step"], held)).run
        threading.Thread(target=run, kwargs={"available_now": True}, daemon=True).start()
        held.acquire()  # one after another: each start takes a planning process
    print(f"held {len(told['cases'])}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
