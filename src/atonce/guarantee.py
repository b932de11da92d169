"""The four guarantees: four orders of the same two writes, and which of them a pipeline can have.

Every delivery is two writes, the *output* and the *progress* (how far the input has been dealt with).
A guarantee is nothing but the order of the two. Nothing else in the code knows about levels:

    level              order                               a crash in between gives
    none               unordered: progress on a timer      loss, duplicates, or both
    at-most-once       progress, then output               loss, never a duplicate
    at-least-once      output, then progress               duplicates, never loss
    effectively-once   both in one atomic commit           neither
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from atonce.errors import GuaranteeRefused, UsageError

_ELSEWHERE = {
    "exactlyonce": "effectively-once",
    "exactlyoncev2": "effectively-once",
    "eos": "effectively-once",
    "transactional": "effectively-once",
    "idempotent": "at-least-once",
    "besteffort": "none",
}
"""What Kafka, Flink and others call them."""


class Guarantee(StrEnum):
    """The one word the user writes, from the weakest to the strongest."""

    NONE = "none"
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"

    @classmethod
    def parse(cls, word: str) -> Guarantee:
        try:
            return cls(word.strip().lower().replace("_", "-").replace(" ", "-"))
        except ValueError:
            allowed = ", ".join(level.value for level in cls)
            same = _ELSEWHERE.get(re.sub(r"[^a-z0-9]", "", word.lower()))
            here = f". Here it is {same}: what everybody means by it, and what can be kept" if same else ""
            raise UsageError(f"guarantee {word!r} is not one of: {allowed}{here}") from None


class Delivery(Protocol):
    """What the four orders are made of: one batch, its output and its progress."""

    def output(self) -> None:
        """Write the batch's output; visible when this returns."""

    def progress(self) -> None:
        """Record that the batch has been dealt with; durable and fenced when this returns."""

    def progress_on_timer(self) -> None:
        """Let the timer record the batch's progress whenever it next fires."""

    def output_and_progress(self) -> None:
        """Write both in one atomic commit: both are visible when this returns, or neither is, ever."""


def none(delivery: Delivery) -> None:
    delivery.progress_on_timer()
    delivery.output()


def at_most_once(delivery: Delivery) -> None:
    delivery.progress()
    delivery.output()


def at_least_once(delivery: Delivery) -> None:
    delivery.output()
    delivery.progress()


def effectively_once(delivery: Delivery) -> None:
    delivery.output_and_progress()


ORDERS: dict[Guarantee, Callable[[Delivery], None]] = {
    Guarantee.NONE: none,
    Guarantee.AT_MOST_ONCE: at_most_once,
    Guarantee.AT_LEAST_ONCE: at_least_once,
    Guarantee.EFFECTIVELY_ONCE: effectively_once,
}

BOUNDARY = (
    "Effectively once holds from replayable input to output read with read_committed. Outside it: side effects of "
    "your own code (an HTTP call in a UDF), readers with read_uncommitted, and, on a log with one copy, the loss of "
    "that disk."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTraits:
    """What a source can promise, in words that `explain` prints."""

    name: str
    replayable: bool
    """The same positions give the same records again."""
    ordered: bool
    """Positions can be compared, so progress can be resumed without Spark's checkpoint."""
    why: str
    needs: tuple[str, ...] = ()
    """What the user must keep to for the promise to hold (printed by `explain`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    """What a sink can promise, in words that `explain` prints."""

    name: str
    atomic: bool
    """Output and progress can be written in one commit."""
    idempotent: bool
    """A repeated write changes nothing (unique keys)."""
    fenced: bool
    """An older instance can be kept from writing."""
    ledger: str
    """Where progress is kept, in words."""
    why: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The strongest level a source and a sink allow together, and why."""

    strongest: Guarantee
    reasons: tuple[str, ...]

    def allows(self, level: Guarantee) -> bool:
        order = list(Guarantee)
        if level is Guarantee.AT_MOST_ONCE:
            # Progress-then-output needs a fenced ledger, nothing else; every sink that we drive has one.
            return True
        return order.index(level) <= order.index(self.strongest)


def strongest(source: SourceTraits, sink: SinkTraits) -> Verdict:
    """The rule: source × sink → strongest level."""
    reasons = [f"source {source.name}: {source.why}", f"sink {sink.name}: {sink.why}"]
    if not source.replayable:
        reasons.append(
            "what was read once cannot be read again, so a crash after reading loses it: at most once is the best"
        )
        return Verdict(strongest=Guarantee.AT_MOST_ONCE, reasons=tuple(reasons))
    if sink.atomic and sink.fenced:
        reasons.append("output and progress are written in one commit, and older instances are fenced")
        return Verdict(strongest=Guarantee.EFFECTIVELY_ONCE, reasons=tuple(reasons))
    if sink.idempotent:
        reasons.append("output absorbs its own repetition (unique keys), so repeating a batch changes nothing")
        return Verdict(strongest=Guarantee.EFFECTIVELY_ONCE, reasons=tuple(reasons))
    reasons.append("output and progress are two writes, and the output cannot tell a repeated batch from a new one")
    return Verdict(strongest=Guarantee.AT_LEAST_ONCE, reasons=tuple(reasons))


def require(level: Guarantee, source: SourceTraits, sink: SinkTraits) -> Verdict:
    """Refuse, before anything starts, a level that source and sink cannot give."""
    verdict = strongest(source, sink)
    if not verdict.allows(level):
        raise GuaranteeRefused(
            f"{level.value} was asked for, but {source.name} → {sink.name} can have {verdict.strongest.value} at most: "
            + "; ".join(verdict.reasons)
            + f". Next: use guarantee={verdict.strongest.value!r}, or a sink that commits output and progress together."
        )
    return verdict
