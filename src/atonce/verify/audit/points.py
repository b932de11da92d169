"""What a subject can be struck at, and what of it was struck: alone, and two in one run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

REQUEST_WAYS = ("before", "after", "delayed", "twice")
STEP_WAYS = ("killed", "paused")


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A request of this kind, or a step of a delivery, struck in this way."""

    place: str
    way: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    requests: tuple[str, ...] = ()
    """The kinds of requests that the clean run sent."""
    steps: tuple[str, ...] = ()
    """The steps that it passed; none for a command."""
    struck: frozenset[Point] = frozenset()
    pairs: frozenset[tuple[Point, Point]] = frozenset()
    """Struck in one run."""

    @property
    def points(self) -> frozenset[Point]:
        """All that exist."""
        at_requests = {Point(kind, way) for kind in self.requests for way in REQUEST_WAYS}
        return frozenset(at_requests | {Point(step, way) for step in self.steps for way in STEP_WAYS})

    def counted(self, places: Iterable[str]) -> int:
        known, wanted = self.points, set(places)
        return sum(1 for point in self.struck if point in known and point.place in wanted)

    @property
    def possible_pairs(self) -> int:
        count = len(self.points)
        return count * (count - 1) // 2

    @property
    def struck_pairs(self) -> int:
        known = self.points
        return sum(1 for one, other in self.pairs if one in known and other in known)

    @property
    def words(self) -> str:
        if not self.requests and not self.steps:
            return ""
        parts = [
            f"requests {self.counted(self.requests)} of {len(self.requests) * len(REQUEST_WAYS)} "
            f"({len(self.requests)} kinds x {', '.join(REQUEST_WAYS)})"
        ]
        if self.steps:
            parts.append(
                f"steps {self.counted(self.steps)} of {len(self.steps) * len(STEP_WAYS)} "
                f"({len(self.steps)} x {', '.join(STEP_WAYS)})"
            )
        return f"Struck: {'; '.join(parts)}; pairs {self.struck_pairs} of {self.possible_pairs}."


def covered(there: Coverage, runs: Iterable[tuple[Point, ...]]) -> Coverage:
    struck: set[Point] = set()
    pairs: set[tuple[Point, Point]] = set()
    for points in runs:
        struck.update(points)
        pairs.update((one, other) for one, other in combinations(sorted(points), 2))
    return Coverage(requests=there.requests, steps=there.steps, struck=frozenset(struck), pairs=frozenset(pairs))
