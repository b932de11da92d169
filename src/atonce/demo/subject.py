"""One run of a demo pipeline in a process of its own, so that it can be killed.

`python -m atonce.demo.subject TASK` with a task in JSON: at the asked step it prints `holding STEP` and waits to be
killed; without such a step it delivers everything and prints `drained`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from atonce.delivery.events import Event, Step
from atonce.pipeline import Pipeline

TABLE = "orders"
ROWS_A_BATCH = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What this process is to do; travels as JSON on its command line."""

    name: str
    guarantee: str
    servers: str
    checkpoint: str
    database: str = ""
    """The SQLite file to process into; empty: publish `folder` instead."""
    folder: str = ""
    hold_at: str = ""
    """A step to stop at; empty: run to the end."""
    hold_nth: int = 1
    after_timer: bool = False
    """Level none: hold until the timer has recorded the batch's progress."""
    timer_s: float = 0.2

    def to_json(self) -> str:
        return json.dumps({key: getattr(self, key) for key in self.__dataclass_fields__})


@dataclass(slots=True)
class Holder:
    """An observer that stops the delivery at one step, for good."""

    task: Task
    seen: int = field(default=0)

    def on_event(self, event: Event) -> None:
        if event.step is Step.DELIVERED:
            print(f"delivered {event.batch_id}", flush=True)
        if event.step != self.task.hold_at:
            return
        self.seen += 1
        if self.seen == self.task.hold_nth:
            if self.task.after_timer:
                self._wait_for_timer(event.batch_id or 0)
            print(f"holding {event.step}", flush=True)
            threading.Event().wait()

    def _wait_for_timer(self, batch_id: int) -> None:
        recorded, pause = -1, threading.Event()
        while recorded < batch_id:
            pause.wait(0.02)
            with sqlite3.connect(self.task.database) as db:
                row = db.execute("SELECT batch_id FROM atonce_ledger WHERE name = ?", (self.task.name,)).fetchone()
            recorded = -1 if row is None or row[0] is None else int(row[0])


def pipeline(task: Task) -> Pipeline:
    from atonce.connectors.kafka.topic import Kafka

    made = Pipeline(
        task.name,
        guarantee=task.guarantee,
        checkpoint=task.checkpoint,
        master="local[1]",
        spark={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "512m"},
        observer=Holder(task),
        say=lambda _: None,
    )
    if not task.database:
        from atonce.connectors.files.source import Files

        return (
            made.read(Files(task.folder, format="text"))
            .transform("SELECT get_json_object(value, '$.order') AS key, value FROM input")
            .write(Kafka("orders", servers=task.servers, partitions=2))
        )
    from atonce.connectors.sql.sqlite.sink import SQLite

    limit: dict[str, Any] = {"maxOffsetsPerTrigger": str(ROWS_A_BATCH)}
    return (
        made.read(Kafka("orders", servers=task.servers, options=limit))
        .transform(
            "SELECT cast(get_json_object(cast(value AS string), '$.order') AS bigint) AS order_id, "
            "get_json_object(cast(value AS string), '$.item') AS item, "
            "cast(get_json_object(cast(value AS string), '$.cents') AS bigint) AS cents FROM input"
        )
        .write(SQLite(task.database, TABLE, create=True, timer_s=task.timer_s))
    )


def main() -> None:
    pipeline(Task(**json.loads(sys.argv[1]))).run(available_now=True)
    print("drained", flush=True)


if __name__ == "__main__":
    main()
