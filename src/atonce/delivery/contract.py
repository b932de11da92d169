"""The one narrow contract between a delivery and the systems plugged into it.

A `Source` and a `Sink` are what the user writes down: frozen, picklable, without connections. `Sink.open` gives an
`OpenSink`, which lives in the driver and owns the connections and the ledger beside the output. A delivery calls, in
this order:

    claim()                             fence older instances, resolve what is in doubt, then read the ledger
    then per batch, in the order that the guarantee says:
      output(batch)                     the output alone
      progress(progress)                the progress alone, fenced
      progress_on_timer(progress)       hand the progress to the timer (level none)
      output_and_progress(batch, p)     both in one atomic commit
    settle()                            returns when everything delivered is visible to readers
    close()

What a system can do besides is an ability: a Protocol of `delivery/abilities.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from atonce.delivery.events import Event
from atonce.delivery.letters import Letter
from atonce.delivery.progress import Plan, Positions, Progress
from atonce.guarantee import Guarantee, SinkTraits, SourceTraits


def unwatched(event: Event) -> None:
    return None


def as_it_is(progress: Progress) -> Progress:
    return progress


def unheard(letters: Sequence[Letter]) -> None:
    return None


def nothing_aside() -> Sequence[Mapping[str, Any]]:
    return ()


@runtime_checkable
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

    def load(self, spark: Any, start: Positions | None, options: dict[str, str]) -> Any:
        """A streaming DataFrame that begins at `start` on a fresh checkpoint (ignored on an existing one)."""

    def positions(self, offsets_json: str) -> Positions | None:
        """One source line of Spark's `offsets/N`, as positions. None when they are opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who is delivering. The name is consumer group, transactional id and ledger key in one."""

    name: str
    instance: str
    """Fresh for every driver process."""
    claimed: bool = False
    """This instance has held the pipeline before: it may renew its claim, and never take it back from a newer one."""
    replaced: tuple[str, int] | None = None
    """Whom its first claim replaced, and at which epoch: a store that shows them again went back to before it."""
    guarantee: Guarantee
    fingerprint: str = ""
    below: str | None = None
    """A pipeline with the same output: nothing at or above its first position is committed beside it
    (`delivery/moving/backfill.py`; asked in the transaction)."""
    source: Source | None = None
    """The input: a sink of the same system may keep progress with it. None under `atonce.deliver`."""
    stands_for: str | None = None
    """The pipeline whose rows and letters these are, where it is not this one: a replay has a ledger of its own."""

    @property
    def pipeline(self) -> str:
        return self.stands_for or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch as the engine hands it over."""

    df: Any
    """The transformed DataFrame, lazily evaluated; running it twice gives the same rows."""
    plan: Plan
    encoded: bool = False
    """True when `df` holds what the sink's own `fused` function gave (the `map_arrow` path), not rows."""
    watch: Callable[[Event], None] = unwatched
    """Called by the sink, in the driver, between its steps (a watcher may block, or kill the process, right there):
    `OutputDone`, `ProgressDone`, `Committing` and `Committed` inside `output_and_progress`; `Aborted` and `Retrying`
    anywhere. The delivery adds which pipeline and which batch it is."""
    complete: Callable[[Progress], Progress] = as_it_is
    """Called by `output_and_progress` between the two writes: adds to the progress what only reading the input told."""
    aside: Callable[[], Sequence[Mapping[str, Any]]] = nothing_aside
    """Called when the rows are written: records that a step before the transform could not read (`PutsAside`)."""
    again_from: Positions | None = None
    """Of the first batch since the claim: where the ledger stood. Dead letters from there on are of records that are
    delivered again (after a reset, or since their batch was never committed): they are taken back."""
    letters: Callable[[Sequence[Letter]], None] = unheard
    """Called with the dead letters that are written, in the same transaction where there is one."""


class OpenSink(Protocol):
    """An open sink: connections, fencing and the ledger beside the output. Lives in the driver."""

    def claim(self) -> Progress | None:
        """Fence every older instance, resolve commits in doubt, write our id, and only then read the ledger.

        None: the ledger holds nothing for this pipeline. Raises `ReplacedError` if a newer instance holds the claim.
        """

    def output(self, batch: Batch) -> int | None:
        """The output alone; returns how many rows were written, where that is known."""

    def progress(self, progress: Progress) -> None:
        """The progress alone, fenced. Also how a new pipeline records where it begins, and how a reset moves it."""

    def progress_on_timer(self, progress: Progress) -> None: ...

    def output_and_progress(self, batch: Batch, progress: Progress) -> int | None:
        """Both or neither; returns how many rows were written, where that is known.

        An unknown outcome is resolved in here, before this returns or raises.

        Raises `AttemptAborted` when nothing of it is visible and the batch may simply run again.
        """

    def settle(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Sink(Protocol):
    """What the user writes: `atonce.Kafka("out")`, `atonce.Postgres(url, table=…)`. Frozen and picklable."""

    def traits(self) -> SinkTraits: ...

    def describe(self) -> str:
        """One line for people, without secrets."""

    def check(self) -> None:
        """Raise `UsageError` (with what is allowed) or `UnreachableError` before anything starts."""

    def open(self, identity: Identity, spark: Any) -> OpenSink: ...
