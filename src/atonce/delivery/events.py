"""What a delivery tells whoever watches: the live display, the metrics, the verifier.

An observer is called in the driver, synchronously, between the steps of a delivery. So one that blocks holds the
delivery at exactly that step; that is how the verifier kills a pipeline between any two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Step(StrEnum):
    """The steps of a delivery, in the order of the effectively-once path."""

    CLAIMED = "claimed"  # the older instance is fenced and the ledger is read
    PLANNED = "planned"  # offsets/N is durable; nothing is delivered yet
    SKIPPED = "skipped"  # the ledger already holds the batch
    OUTPUT_BEGUN = "output-begun"  # before the first row is written
    OUTPUT_DONE = "output-done"  # every row is written, none may be visible yet
    PROGRESS_DONE = "progress-done"  # progress is written (in the open transaction, or on its own)
    COMMITTING = "committing"  # before the atomic commit is sent
    COMMITTED = "committed"  # the atomic commit is answered
    DELIVERED = "delivered"  # the batch is done; Spark's commits/N is not written yet
    ABORTED = "aborted"  # the attempt was aborted and will run again
    PASSED_OVER = "passed-over"  # the source leaves something unread; facts: how many `files`
    RETRYING = "retrying"  # passing trouble; waiting before the next try
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    step: Step
    pipeline: str
    batch_id: int | None = None
    rows: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Observer(Protocol):
    def on_event(self, event: Event) -> None: ...


class Silent:
    """Watches nothing."""

    def on_event(self, event: Event) -> None:
        return None
