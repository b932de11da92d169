"""Runs of contestants and what they come to: medians, spread, and whether a run was noisy."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

NOISY_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One contestant in one round. `figures` by name, e.g. {"records/s": 812_000.0}; `problem` when it has none."""

    contestant: str
    round: int
    figures: dict[str, float] = field(default_factory=dict)
    others: float = 0.0
    problem: str = ""

    @property
    def noisy(self) -> bool:
        return self.others > NOISY_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All rounds of one contestant."""

    contestant: str
    rounds: int
    figures: dict[str, Spread]
    others: float
    problems: tuple[str, ...]

    @property
    def noisy(self) -> bool:
        return self.others > NOISY_SHARE


def summaries(runs: list[Run]) -> list[Summary]:
    """In the order in which contestants first appeared."""
    found = []
    for name in dict.fromkeys(run.contestant for run in runs):
        mine = [run for run in runs if run.contestant == name]
        good = [run for run in mine if not run.problem]
        figures: dict[str, Spread] = {}
        for key in dict.fromkeys(key for run in good for key in run.figures):
            values = [run.figures[key] for run in good if key in run.figures]
            figures[key] = Spread(median=statistics.median(values), least=min(values), most=max(values))
        found.append(
            Summary(
                contestant=name,
                rounds=len(good),
                figures=figures,
                others=statistics.median([run.others for run in good]) if good else 0.0,
                problems=tuple(run.problem for run in mine if run.problem),
            )
        )
    return found
