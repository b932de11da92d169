"""What verify says about one run, and about all of them. Reports only print these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from atonce.guarantee import Guarantee
from atonce.verify.audit.points import Coverage, Point
from atonce.verify.checks.allowed import BITES, Anomaly, strongest
from atonce.verify.checks.findings import Finding
from atonce.verify.wire.history import Mark


class State(StrEnum):
    KEPT = "kept"
    REFUSED = "refused"  # it stopped and named the position, where going on would lose or double data: counts as kept
    BROKEN = "broken"
    NOT_EXERCISED = "not exercised"  # the fault never struck: says nothing
    NOT_APPLICABLE = "not applicable"
    OBSERVED = "observed"  # no level was declared: reported, not judged


RAN = frozenset({State.KEPT, State.REFUSED, State.BROKEN, State.OBSERVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One fault, one variant, one run."""

    fault: str
    variant: str
    title: str
    where: str
    may_show: str
    state: State
    why: str = ""
    expected: int = 0
    delivered: int = 0
    findings: tuple[Finding, ...] = ()
    recovery_s: float | None = None
    duration_s: float = 0.0
    struck: str = ""
    notes: tuple[str, ...] = ()
    began_at: float = 0.0
    marks: tuple[Mark, ...] = ()
    records: int = 0
    """Of its input."""
    points: tuple[Point, ...] = ()
    """What it struck."""

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.variant}"

    def count(self, *anomalies: Anomaly) -> int:
        return sum(finding.count for finding in self.findings if finding.anomaly in anomalies)

    @property
    def ran(self) -> bool:
        return self.state in RAN


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All runs of one subject at one level."""

    subject: str
    broker: str
    output: str
    level: Guarantee | None
    seed: int
    records: int
    results: tuple[Result, ...]
    duration_s: float
    fingerprint: str
    oracle: str = ""
    """How the clean run, which all others are compared with, was itself checked."""
    versions: dict[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    """Faults that were asked for by number."""
    final_only: bool = False
    """Only the last value of each key is judged, so an update that comes twice cannot show."""
    fed: tuple[str, ...] = ()
    """What makes its input hard to take."""
    not_fed: Mapping[str, str] = field(default_factory=dict)
    """What its input did not have, and why."""
    coverage: Coverage = field(default_factory=Coverage)
    trouble: str = ""
    """What went wrong with the subject although there was no fault: nothing is proven then."""
    replay: str = ""
    """The command line, with {fault}, {seed} and, of a matrix, {level} to be filled in."""

    @property
    def found(self) -> set[Anomaly]:
        return {finding.anomaly for result in self.results if result.ran for finding in result.findings}

    @property
    def broken(self) -> Sequence[Result]:
        return [result for result in self.results if result.state is State.BROKEN]

    @property
    def ran(self) -> Sequence[Result]:
        return [result for result in self.results if result.ran]

    @property
    def faulted(self) -> Sequence[Result]:
        """The runs with a fault that struck."""
        return [result for result in self.ran if result.fault != "clean"]

    @property
    def not_exercised(self) -> Sequence[Result]:
        return [result for result in self.results if result.state is State.NOT_EXERCISED]

    @property
    def word(self) -> str:
        """The verdict: observed, broken, could not run, kept in part, kept."""
        if self.level is None:
            return "observed"
        if self.broken:
            return "broken"
        if self.trouble or self.never_fired or not self.faulted:
            return "could not run"
        return "kept in part" if self.not_exercised else "kept"

    @property
    def never_fired(self) -> Sequence[Result]:
        """Applicable faults, asked for by number, of which no variant struck."""
        struck = {result.fault for result in self.results if result.ran}
        return [
            result
            for result in self.results
            if result.state is State.NOT_EXERCISED and result.fault in self.asked and result.fault not in struck
        ]

    @property
    def observed(self) -> Guarantee | None:
        """The strongest level that allows everything that was seen."""
        return strongest(self.found)

    @property
    def too_weak(self) -> frozenset[Anomaly]:
        """What the level must show under faults that are strong enough, and did not."""
        if self.level is None or not self.ran:
            return frozenset()
        unseen = {Anomaly.DUPLICATE} if self.final_only else frozenset()
        return BITES[self.level] - unseen - self.found

    def exit_code(self, strict: bool = False) -> int:
        if self.broken or (strict and self.too_weak):
            return 1
        if self.never_fired or not self.ran or self.trouble or (strict and self.not_exercised):
            return 2
        return 0
