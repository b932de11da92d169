"""The one narrow contract between a pipeline and a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from atonce.guarantee import SourceTraits
from atonce.ledger.progress import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFiles:
    """A directory that Spark's own file source reads: what it passes over, it does not tell."""

    path: str
    options: Mapping[str, str]


class Source(Protocol):
    """What the user writes: `atonce.Kafka("orders")`, `atonce.Files(…)`, `atonce.Table(…)`. Frozen and picklable."""

    def traits(self) -> SourceTraits: ...

    def describe(self) -> str:
        """One line for people, without secrets."""

    def check(self) -> None:
        """Raise `UsageError` or `UnreachableError` before anything starts."""

    def first_positions(self) -> Positions | None:
        """Where a new pipeline begins, as concrete positions. None when positions are opaque."""

    def source_ids(self) -> dict[str, str]:
        """Topic → topic id (empty where there is no such thing)."""

    def borders(self, positions: Positions | None) -> dict[str, str]:
        """Table → what stands right before its position now. Empty where an id is enough to know a log again."""

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        """A streaming DataFrame that begins at `start` on a fresh checkpoint (ignored on an existing one)."""

    def positions(self, offsets_json: str) -> Positions | None:
        """One source line of Spark's `offsets/N`, as positions. None when they are opaque."""

    def watched_files(self) -> WatchedFiles | None:
        """None where Spark's file source has no part in it."""
