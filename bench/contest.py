"""Runs contestants one after another, alternating: A B C, B C A, … so that a slow minute hits all of them alike.

Each round begins with another one, so that nobody always follows the same one, and inherits what that left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from atonce.errors import AtOnceError
from bench.results import Run


@dataclass(frozen=True, slots=True)
class Contestant:
    """`run` does one whole run and returns its figures; it raises when the run has no result."""

    name: str
    run: Callable[[], Run]


def alternate(contestants: Sequence[Contestant], rounds: int, tell: Callable[[str], None]) -> list[Run]:
    """Every run, in the order they took place. One that fails has its problem noted and does not stop the others."""
    runs: list[Run] = []
    for number in range(1, rounds + 1):
        first = (number - 1) % max(1, len(contestants))
        for contestant in [*contestants[first:], *contestants[:first]]:
            tell(f"round {number}/{rounds}: {contestant.name}")
            try:
                run = replace(contestant.run(), contestant=contestant.name, round=number)
            except (AtOnceError, OSError, TimeoutError) as error:
                run = Run(contestant=contestant.name, round=number, problem=f"{type(error).__name__}: {error}")
            runs.append(run)
            tell(f"  {_words(run)}")
    return runs


def _words(run: Run) -> str:
    if run.problem:
        return f"no result: {run.problem.splitlines()[0]}"
    figures = ", ".join(
        f"{value:,.3g} {key}" if value < 1000 else f"{value:,.0f} {key}" for key, value in run.figures.items()
    )
    return f"{figures}; others used {run.others:.0%} of the machine{' (noisy)' if run.noisy else ''}"
