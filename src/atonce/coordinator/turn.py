"""One turn of a group coordinator: what a request, a timer or an administrator has set in motion, collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from atonce.coordinator.decision import Answer, Decision, Deferred, Effect, ProducerIdAndEpoch

T = TypeVar("T")

# What a timer is for, whose group, whose member ("" if it is the group's own).
TimerKey = tuple[str, str, str]


@dataclass(slots=True)
class Turn:
    now_ms: int
    records: list[object] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def answer(self, token: int | None, answer: object) -> None:
        """Answer a request that was deferred, once the records of this turn are durable."""
        if token is not None:
            self.effects.append(Answer(token, answer))

    def decide(self, answer: T | Deferred, producer: ProducerIdAndEpoch | None = None) -> Decision[T]:
        return Decision(answer, tuple(self.records), tuple(self.effects), producer)
