"""What is put to the test, as the scenarios drive it: started, killed, paused, started again, drained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from atonce.connectors.contract import Feed, ScratchServer, Strike, Topic, Written
from atonce.delivery.events import Step
from atonce.guarantee import Guarantee
from atonce.verify.checks.oracle import Look
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.workload import Workload
from atonce.verify.wire.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Everything a run calls its own; fresh for every run."""

    run: str
    input: str
    output: str
    group: str
    scratch: Path
    servers: str
    """Through the proxy."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a subject ended by itself."""

    code: int | None
    words: str
    refused: bool = False
    """It stopped because going on would lose or double data, and said where."""
    replaced: bool = False


class Hold(Strike, Protocol):
    """A step at which the subject stands still, until it is released or killed."""

    released: bool


class Subject(Protocol):
    """One subject. `number` 0 is the instance under test, 1 a second one beside it (F16, F18)."""

    level: Guarantee | None
    """None: not declared; the report says the strongest that was seen."""
    steps: bool
    """True when it can be held at the steps of a delivery."""
    endless: bool
    """True for a command that runs until it is killed; a pipeline drains its input and ends."""
    title: str

    @property
    def server(self) -> ScratchServer | None:
        """The server of its output, where verify has made one ready."""

    def needs_met(self) -> set[Need]: ...

    def prepare(self, names: Names, history: History) -> None:
        """A new run begins: nothing of the former one is left."""

    def input(self) -> Feed | Topic:
        """How the prepared run is fed."""

    def output(self) -> Written | Topic:
        """Where the prepared run's output is read back. Asked before its start; what it held before is gone."""

    def start(self, number: int = 0) -> None: ...

    def kill(self, number: int = 0) -> None: ...

    def kill_driver(self, number: int = 0) -> None:
        """Its Python workers stay, as on executors that have not heard of it; they go at the end of the run."""

    def pause(self, number: int = 0) -> None: ...

    def resume(self, number: int = 0) -> None: ...

    def running(self, number: int = 0) -> bool: ...

    def ending(self, number: int = 0) -> Ending | None:
        """Set when it ended by itself since its last start."""

    def finish(self) -> None:
        """End every instance; the run is over."""

    def close(self) -> None: ...

    def hold_at(self, step: Step, nth: int, number: int = 0) -> Hold:
        """A hold at one step of an AtOnce pipeline's delivery."""

    def batches_of(self, records: int) -> None:
        """From the next run on, the pipeline takes so many into each batch."""

    def larger_batches(self) -> None:
        """From its next start on, the pipeline takes half as much again into each batch."""

    def workers(self) -> list[int]:
        """Process ids of Spark's Python workers."""

    def look(self, workload: Workload, sent_from_ms: int) -> Look | None:
        """After the clean run: what it is, and what its transform gives. None: nobody can know that of a command."""

    def last_words(self) -> str: ...
