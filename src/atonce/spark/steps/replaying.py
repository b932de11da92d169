"""Dead letters delivered after all: `atonce dead-letters replay`, and `Pipeline.replay_dead_letters`.

A replay is a pipeline of its own (NAME.replay, with its own row in the ledger), so that it fences other replays and
never the live pipeline. Its rows and the mark on each letter are one transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atonce.delivery.abilities import KeepsLastRow, Peeks, PutsAside, RunsFunctions
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.letters import HasLetters, Kept, Letter, Original, Place, ReplaysLetters
from atonce.delivery.progress import Plan, Positions, Progress
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.spark.planning.planner import Planner
from atonce.spark.steps.replay import rows_again

_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of it."""

    replayed: int = 0
    """Letters that are delivered now."""
    rows: int = 0
    failed: int = 0
    """Letters that cannot be delivered today either: each is still one letter, with one more attempt."""
    without_record: int = 0
    """Letters whose input record is not known."""

    def words(self) -> str:
        lost = f"; {self.without_record} have no input record, and stay" if self.without_record else ""
        return f"{self.replayed} letters replayed ({self.rows} rows), {self.failed} failed again{lost}"


@dataclass(frozen=True, slots=True)
class _KnownRecords:
    """The input of a replay: the records that the letters hold, wherever the log stands by now."""

    known: dict[Place, Original] = field(default_factory=dict)

    def originals(self, places: Sequence[Place]) -> Mapping[Place, Original]:
        return {place: self.known[place] for place in places if place in self.known}


def replay(name: str, planner: Planner, spark: Any, choose: Callable[[Kept], bool]) -> Replay:
    """Of pipeline `name`. Letters that were replayed before are never chosen."""
    sink = planner.sink
    letters = _refused_or_letters(sink, planner.source)
    records = _KnownRecords()
    identity = Identity(
        name=f"{name}.replay",
        instance=uuid.uuid4().hex[:12],
        guarantee=Guarantee.EFFECTIVELY_ONCE,
        source=records,  # type: ignore[arg-type]
        stands_for=name,
    )
    opened = sink.open(identity, spark)
    try:
        if not isinstance(opened, ReplaysLetters):
            raise UsageError(
                f"{sink.describe()} cannot mark a letter in the commit that delivers it, so that it could be delivered "
                "twice. Next: reset the pipeline to before the letters, or deliver them by hand."
            )
        recorded = opened.claim()
        # Read behind the claim: whoever replayed them meanwhile is done, or shut out.
        below = _delivered_up_to(name, sink, spark, planner.source)
        waiting = [
            kept
            for kept in letters.kept_letters(name)
            if kept.replayed_at is None and choose(kept) and _is_below(kept.letter, below)
        ]
        known = [kept for kept in waiting if kept.letter.original is not None]
        records.known.update({each.letter.place: each.letter.original for each in known if each.letter.original})
        total = Replay(without_record=len(waiting) - len(known))
        for at in range(0, len(known), _AT_ONCE):
            recorded = _after(recorded, identity)
            total = _delivered(opened, spark, planner, known[at : at + _AT_ONCE], recorded, total)
        return total
    finally:
        opened.close()


def _delivered(
    opened: Any, spark: Any, planner: Planner, some: Sequence[Kept], progress: Progress, total: Replay
) -> Replay:
    chosen = [kept.letter for kept in some]
    made = rows_again(spark, planner, planner.source.arrow_schema(), chosen)  # type: ignore[attr-defined]
    start: dict[str, int] = {}
    end: dict[str, int] = {}
    for topic, partition, offset in (letter.place for letter in chosen):
        place = f"{topic}/{partition}"
        start[place] = min(start.get(place, offset), offset)
        end[place] = max(end.get(place, 0), offset + 1)
    plan = Plan(query_id="replay", batch_id=progress.batch_id, start=start, end=end)
    batch = Batch(df=made.df, plan=plan, aside=lambda: made.unread)
    rows, failed = opened.deliver_letters(batch, progress, some)
    return Replay(
        replayed=total.replayed + len(chosen) - failed,
        rows=total.rows + (rows or 0),
        failed=total.failed + failed,
        without_record=total.without_record,
    )


def _delivered_up_to(name: str, sink: Any, spark: Any, source: Any) -> Positions | None:
    """Where the pipeline itself stands: what lies beyond, it delivers (or puts aside) itself."""
    identity = Identity(name=name, instance=uuid.uuid4().hex[:12], guarantee=Guarantee.EFFECTIVELY_ONCE, source=source)
    opened = sink.open(identity, spark)
    try:
        recorded = opened.peek() if isinstance(opened, Peeks) else None
        return None if recorded is None else recorded.positions
    finally:
        opened.close()


def _is_below(letter: Letter, positions: Positions | None) -> bool:
    topic, partition, offset = letter.place
    return positions is None or offset < positions.get(f"{topic}/{partition}", offset + 1)


def _refused_or_letters(sink: Any, source: Any) -> HasLetters:
    where = sink.describe()
    if not isinstance(sink, HasLetters):
        raise UsageError(f"{where} keeps no dead letters")
    if isinstance(sink, KeepsLastRow) and (keys := sink.keys_by_order()):
        raise UsageError(
            f"{where} keeps the row of ({', '.join(keys)}) that came last: a letter would now stand over newer "
            "rows. Next: name the order of rows with order_by."
        )
    if isinstance(sink, PutsAside) and not sink.puts_aside:
        raise UsageError(
            f"{where} stops at what cannot be delivered, so that a letter which fails again could not stay one. Next: "
            "set on_error: dead-letter for the replay."
        )
    if not isinstance(source, RunsFunctions):
        raise UsageError(f"{source.describe()} cannot give its records again: nothing can be replayed")
    return sink


def _after(recorded: Progress | None, identity: Identity) -> Progress:
    return Progress(
        instance=identity.instance,
        query_id="replay",
        batch_id=0 if recorded is None else recorded.batch_id + 1,
        positions=None,
        sequence=1 if recorded is None else recorded.sequence + 1,
    )
