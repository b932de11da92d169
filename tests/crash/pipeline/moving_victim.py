"""A process that gets killed while it adopts a checkpoint, or delivers a backfill. Run as a script with one JSON argument.

Prints `held N` when everything stands where it was told to stand still.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

import atonce
from atonce.connectors.sql.delivery import OpenSqlSink
from atonce.delivery.events import Event
from atonce.delivery.progress import Progress
from atonce.spark.checkpoint import left
from atonce.spark.session import session

PER_BATCH = 10


def pipeline(name: str, servers: str, scratch: Path, start: str = "earliest") -> atonce.Pipeline:
    """The same for the victim and for the recovery."""
    source = atonce.Kafka(name, servers=servers, start=start, options={"maxOffsetsPerTrigger": str(PER_BATCH)})
    return (
        atonce.Pipeline(name, checkpoint=str(scratch / f"checkpoint-{name}"), say=lambda _: None)
        .read(source)
        .transform("SELECT CAST(value AS STRING) AS value FROM input")
        .write(atonce.SQLite(scratch / f"{name}.db", table="out"))
    )


def checkpoint(name: str, scratch: Path) -> str:
    return str(scratch / f"theirs-{name}")


class Hold:
    """Stops a backfill at a step of its second batch, for good."""

    def __init__(self, step: str, held: threading.Semaphore) -> None:
        self._step, self._held = step, held

    def on_event(self, event: Event) -> None:
        if event.batch_id == 1 and event.step == self._step:
            self._held.release()
            threading.Event().wait()


def hold_adoption(before: str, after: str, held: threading.Semaphore) -> None:
    """Of two pipelines: one stops before its positions are recorded, the other after."""
    record = OpenSqlSink.progress

    def progress(self: OpenSqlSink, told: Progress) -> None:
        if self._identity.name == after:
            record(self, told)
        if self._identity.name in (before, after):
            held.release()
            threading.Event().wait()
        record(self, told)

    OpenSqlSink.progress = progress  # type: ignore[method-assign]


def main() -> None:
    told = json.loads(sys.argv[1])
    servers, scratch = told["servers"], Path(told["scratch"])
    session("local[2]")
    left.QUIET_S = 0.0
    held = threading.Semaphore(0)
    for name, step in told["backfills"].items():
        backfill = replace(pipeline(name, servers, scratch).backfill(f"{name}-history"), observer=Hold(step, held))
        threading.Thread(target=backfill.run, daemon=True).start()
        held.acquire()
    hold_adoption(told["before"], told["after"], held)
    for name in (told["before"], told["after"]):
        adopt = pipeline(name, servers, scratch).adopt
        threading.Thread(target=adopt, args=(checkpoint(name, scratch),), daemon=True).start()
        held.acquire()
    print(f"held {len(told['backfills']) + 2}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
