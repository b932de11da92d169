"""What a delivery tells whoever watches: the live display, the metrics, the verifier.

An observer is called in the driver, synchronously, between the steps of a delivery. So one that blocks holds the
delivery at exactly that step; that is how the verifier kills a pipeline between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from atonce.delivery.progress import Positions


class Step(StrEnum):
    """The steps of a delivery, in the order of the effectively-once path."""

    CLAIMED = "claimed"  # the older instance is fenced and the ledger is read
    PLANNED = "planned"  # offsets/N is durable; nothing is delivered yet
    SKIPPED = "skipped"  # the ledger already holds the batch
    OUTPUT_BEGUN = "output-begun"  # before the first row is written
    PUT_ASIDE = "put-aside"  # dead letters are written, visible with the rows
    OUTPUT_DONE = "output-done"  # every row is written, none may be visible yet
    PROGRESS_DONE = "progress-done"  # progress is written (in the open transaction, or on its own)
    COMMITTING = "committing"  # before the atomic commit is sent
    COMMITTED = "committed"  # the atomic commit is answered
    DELIVERED = "delivered"  # the batch is done; Spark's commits/N is not written yet
    ABORTED = "aborted"  # the attempt was aborted and will run again
    PASSED_OVER = "passed-over"  # the source leaves something unread
    RETRYING = "retrying"  # passing trouble; waiting before the next try
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Where a delivery stands. Each step has its own class, with what is known there."""

    step: ClassVar[Step]
    pipeline: str = ""
    batch_id: int | None = None

    def details(self) -> dict[str, Any]:
        """What this step tells besides."""
        common = {each.name for each in fields(Event)}
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in common}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(Event):
    step: ClassVar[Step] = Step.CLAIMED
    positions: Positions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    step: ClassVar[Step] = Step.PLANNED
    start: Positions | None = None
    end: Positions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(Event):
    step: ClassVar[Step] = Step.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBegun(Event):
    step: ClassVar[Step] = Step.OUTPUT_BEGUN


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDone(Event):
    step: ClassVar[Step] = Step.OUTPUT_DONE
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAside(Event):
    step: ClassVar[Step] = Step.PUT_ASIDE
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressDone(Event):
    step: ClassVar[Step] = Step.PROGRESS_DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Committing(Event):
    step: ClassVar[Step] = Step.COMMITTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    step: ClassVar[Step] = Step.COMMITTED
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    step: ClassVar[Step] = Step.DELIVERED
    rows: int | None = None
    read: Mapping[str, int] = field(default_factory=dict)
    """What became of the input's offsets, where all tasks told; empty where they did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(Event):
    step: ClassVar[Step] = Step.ABORTED
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver(Event):
    step: ClassVar[Step] = Step.PASSED_OVER
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(Event):
    step: ClassVar[Step] = Step.RETRYING
    why: str
    wait_s: float = 0.0
    restarts: int = 0
    """How often the query was started again so far; 0 where only a batch is tried again."""
    in_doubt: bool = False
    """A commit was sent and not answered: whether its batch is delivered is being found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    step: ClassVar[Step] = Step.STOPPED


class Observer(Protocol):
    def on_event(self, event: Event) -> None: ...


class Silent:
    """Watches nothing."""

    def on_event(self, event: Event) -> None:
        return None
