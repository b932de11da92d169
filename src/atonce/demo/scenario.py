"""What the demo does: publish, then per level run, kill twice at the worst moments, recover, count."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from atonce.demo.orders import write_orders
from atonce.demo.subject import TABLE, Task
from atonce.guarantee import Guarantee
from atonce.local.child import Child

RUN_TIMEOUT_S = 300.0
_SLOW_TIMER_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A moment to SIGKILL the pipeline at."""

    at: str
    """A step of the delivery (delivery/events.py)."""
    words: str
    nth: int = 2
    after_timer: bool = False
    timer_s: float = 0.2


# The same two moments for everyone: between its two writes. Each level has them elsewhere.
KILLS: dict[Guarantee, tuple[Kill, Kill]] = {
    Guarantee.NONE: (
        Kill(at="output-begun", words="the timer had recorded progress, the rows were not written", after_timer=True),
        Kill(at="output-done", words="rows were written, the timer had not fired", timer_s=_SLOW_TIMER_S),
    ),
    Guarantee.AT_MOST_ONCE: (
        Kill(at="progress-done", words="progress was recorded, the rows were not written"),
        Kill(at="progress-done", words="progress was recorded, the rows were not written"),
    ),
    Guarantee.AT_LEAST_ONCE: (
        Kill(at="output-done", words="rows were written, progress was not recorded"),
        Kill(at="output-done", words="rows were written, progress was not recorded"),
    ),
    Guarantee.EFFECTIVELY_ONCE: (
        Kill(at="committing", words="rows and progress stood in an open transaction, not committed"),
        Kill(at="committed", words="both were committed, Spark did not know it yet"),
    ),
}

WHY: dict[Guarantee, str] = {
    Guarantee.NONE: "progress on a timer, output when ready: a crash loses, repeats, or both",
    Guarantee.AT_MOST_ONCE: "progress, then output: a crash in between loses the batch, never repeats it",
    Guarantee.AT_LEAST_ONCE: "output, then progress: a crash in between repeats the batch, never loses it",
    Guarantee.EFFECTIVELY_ONCE: "output and progress in one commit: a crash in between leaves neither, or both",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one level delivered."""

    guarantee: Guarantee
    sent: int
    delivered: int
    lost: int
    duplicated: int
    kills: int
    seconds: float

    @property
    def as_promised(self) -> bool:
        """The level showed what it must: weaker levels fail in their own way, the strongest does not."""
        loses = self.guarantee in (Guarantee.NONE, Guarantee.AT_MOST_ONCE)
        repeats = self.guarantee in (Guarantee.NONE, Guarantee.AT_LEAST_ONCE)
        return (self.lost > 0) is loses and (self.duplicated > 0) is repeats


class Scenario:
    """One demo in a scratch directory, over a broker that is already running."""

    def __init__(self, scratch: Path, servers: str, orders: int, say: Callable[[str], None]) -> None:
        self._scratch = scratch
        self._servers = servers
        self._orders = orders
        self._say = say

    def publish(self) -> None:
        """The orders, from a file into Kafka, effectively once."""
        folder = self._scratch / "orders"
        write_orders(folder, self._orders)
        task = self._task("publish", Guarantee.EFFECTIVELY_ONCE)
        self._run(replace(task, folder=str(folder)))

    def levels(self) -> Iterator[Result]:
        for level in Guarantee:
            yield self.level(level)

    def level(self, level: Guarantee) -> Result:
        began = time.monotonic()
        database = self._scratch / f"{level.value}.db"
        task = replace(self._task(f"orders-{level.value}", level), database=str(database))
        for run, kill in enumerate(KILLS[level], 1):
            self._say(f"{level.value}: run {run}, to be killed at the worst moment")
            held = replace(task, hold_at=kill.at, hold_nth=kill.nth, after_timer=kill.after_timer, timer_s=kill.timer_s)
            self._run(held, kill)
        self._say(f"{level.value}: starting again, to recover and finish")
        self._run(task)
        return replace(self._audit(level, database), seconds=time.monotonic() - began)

    def _audit(self, level: Guarantee, database: Path) -> Result:
        with sqlite3.connect(database) as db:
            counts = Counter(
                {row[0]: row[1] for row in db.execute(f"SELECT order_id, count(*) FROM {TABLE} GROUP BY 1")}
            )
        return Result(
            guarantee=level,
            sent=self._orders,
            delivered=sum(counts.values()),
            lost=sum(1 for number in range(self._orders) if not counts[number]),
            duplicated=sum(times - 1 for times in counts.values()),
            kills=len(KILLS[level]),
            seconds=0.0,
        )

    def _task(self, name: str, level: Guarantee) -> Task:
        return Task(
            name=name,
            guarantee=level.value,
            servers=self._servers,
            checkpoint=str(self._scratch / "checkpoints" / name),
        )

    def _run(self, task: Task, kill: Kill | None = None) -> None:
        command = [sys.executable, "-m", "atonce.demo.subject", task.to_json()]
        log = self._scratch / f"{task.name}.log"
        # A killed Spark leaves its temporary files: they go with the rest of the scratch.
        temporary = self._scratch / "tmp"
        temporary.mkdir(exist_ok=True)
        # These JVMs live for seconds: compiling less saves two fifths of their CPU.
        env = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1", **os.environ, "TMPDIR": str(temporary)}
        with Child(command, cwd=self._scratch, env=env, log=log, scratch=self._scratch) as child:
            if kill is None:
                child.wait_for_line("drained", RUN_TIMEOUT_S)
                return
            child.wait_for_line("holding", RUN_TIMEOUT_S)
            self._say(f"{task.guarantee}: [red]SIGKILL[/red] while {kill.words}")
            child.kill()
