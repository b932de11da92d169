"""What the checks return: an anomaly by name, how often, and where to look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from atonce.verify.checks.allowed import Anomaly

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    anomaly: Anomaly
    count: int
    examples: tuple[str, ...]
    """Offending records with topic, partition and offset; a few of them."""


def found(anomaly: Anomaly, cases: Iterable[str]) -> list[Finding]:
    """One finding, or none when there is no case."""
    all_cases = list(cases)
    return [Finding(anomaly, len(all_cases), tuple(all_cases[:EXAMPLES]))] if all_cases else []
