"""Moving about: a bounded range of the input, delivered under a name of its own beside the pipeline that runs.

Into an output that both write, every record is there once in three cases, and refused in all others:

append, Kafka    the range ends at or below where the live pipeline began, which its ledger keeps as `first`. Asked at
                 the start, and again in the transaction of every batch
upsert           the table keeps the newest row of a key by `order_by`, whoever brings it
dedupe           the numbers that were dealt with belong to the table, whoever brought them
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from atonce.delivery.abilities import (
    Beside,
    GivesSink,
    KnowsItsEnds,
    KnowsItsPlace,
    OnServers,
    Peeks,
    ReadsRange,
    SharesOutput,
    as_sink,
)
from atonce.delivery.contract import Identity, Sink, Source
from atonce.delivery.engine import Engine
from atonce.delivery.moving.rewind import target_positions
from atonce.delivery.progress import Plan, Positions, Progress
from atonce.errors import RefusedError, UsageError
from atonce.guarantee import Guarantee

FIRST = "first"
"""As an end: where the live pipeline began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What the user asks for."""

    live: str
    start: str
    until: str
    sink: Sink | GivesSink
    """The live pipeline's, beside whose output its ledger stands."""
    shared: bool
    """Both write the same output."""

    def at(self, servers: str) -> Span:
        return replace(self, sink=self.sink.at(servers)) if isinstance(self.sink, OnServers) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """The same, found and allowed."""

    source: Source
    until: Positions
    below: str | None
    """The pipeline whose first position no batch may pass; None: an overlap does no harm."""


def same_output(one: Sink | GivesSink, other: Sink | GivesSink) -> bool:
    """Whether both write one output, whatever they call it."""
    one, other = as_sink(one), as_sink(other)
    return one == other or (
        isinstance(one, KnowsItsPlace) and isinstance(other, KnowsItsPlace) and one.place() == other.place()
    )


def bounded(
    span: Span, name: str, fingerprint: str, *, sink: Sink, source: Source, engine: Engine, stateful: bool
) -> Bounded:
    """Nothing is made or fenced here, and whatever is not exact is refused."""
    if not isinstance(source, ReadsRange) or not isinstance(source, KnowsItsEnds):
        raise UsageError(f"{source.describe()} cannot be read up to an end, which a backfill needs")
    live = _ledger_of(span.live, as_sink(span.sink), engine, source)
    there = source.ends()
    start = _named(source, "--from", span.start, live, span, {p: first for p, (first, _) in there.items()})
    until = _named(source, "--until", span.until, live, span, start)
    for place, at in sorted(until.items()):
        if at > there[place][1]:
            raise UsageError(f"--until {span.until}: {place} ends at {there[place][1]}, before {at}")
        if at < start[place]:
            raise UsageError(f"--from {span.start} is behind --until {span.until}: {place} from {start[place]} to {at}")
    _refuse_another(name, fingerprint, _ledger_of(name, sink, engine, source), start)
    below = _allowed(span, live, moved(start, until), stateful) if span.shared else None
    return Bounded(source=source.between(start, until), until=until, below=below)


def moved(start: Positions | None, end: Positions | None) -> Positions:
    """The ends of those partitions of which something is read."""
    return {place: at for place, at in (end or {}).items() if at > _at(start, place)}


def refuse_overlap(below: str, live: Progress | None, plan: Plan) -> None:
    """For a sink, in the transaction that commits this batch: `live` is the ledger of `below` as it stands there."""
    _refuse_overlap(below, live, moved(plan.start, plan.end))


def _refuse_overlap(below: str, live: Progress | None, end: Positions) -> None:
    first = None if live is None else live.first
    if first is None:
        raise RefusedError(
            f"the ledger of {below!r} does not say where it began, so nobody can tell what it delivers itself. Nothing "
            f"of this batch was delivered. Next: backfill into another output, or into a table with order_by or dedupe."
        )
    overlap = _overlap(first, end)
    if overlap:
        raise RefusedError(
            f"{below!r} delivers some of this range itself: {'; '.join(overlap)}. To deliver it here as well would "
            "double it, so nothing of this batch was delivered. Next: end the range where it begins (--until first)."
        )


def refuse_short(until: Positions, reached: Positions | None, name: str) -> None:
    """After all that was there is delivered: is that the whole range?"""
    short = [f"{p}: {(reached or {}).get(p, 0)} of {at}" for p, at in sorted(until.items()) if _at(reached, p) < at]
    if short:
        raise RefusedError(
            f"{name!r} stopped before the end of its range, since a transaction is still open there: "
            f"{'; '.join(short)}. What was delivered stays. Next: when it has ended, run the same command again; it "
            "goes on where it stopped."
        )


def _at(positions: Positions | None, place: str) -> int:
    return (positions or {}).get(place, 0)


def marked(fingerprint: str, live: str) -> str:
    """A pipeline's fingerprint as that of a backfill beside `live`."""
    return f"{fingerprint} backfill:{hashlib.sha256(live.encode()).hexdigest()[:8]}"


def _refuse_another(name: str, fingerprint: str, recorded: Progress | None, start: Positions) -> None:
    """A ledger under this name is that of this very backfill, which goes on; or nobody may touch it."""
    if recorded is None:
        return
    if fingerprint.rpartition(" ")[2] != recorded.fingerprint.rpartition(" ")[2]:
        raise UsageError(
            f"{name!r} is a pipeline by itself, and a backfill of its name would take it over. Next: another --as."
        )
    first, reached = recorded.first or {}, recorded.positions or {}
    other = [p for p, at in sorted(start.items()) if not _at(first, p) <= at <= max(_at(first, p), _at(reached, p))]
    if other:
        began = ", ".join(f"{p} at {_at(first, p)}" for p in other)
        raise UsageError(
            f"{name!r} began before, {began}, and --from says {', '.join(f'{p} at {start[p]}' for p in other)}. Next: "
            "the same --from, to go on with it; another range is another backfill, with another name."
        )


def _ledger_of(name: str, sink: Sink, engine: Engine, source: Source) -> Progress | None:
    identity = Identity(name=name, instance=uuid.uuid4().hex[:12], guarantee=Guarantee.EFFECTIVELY_ONCE, source=source)
    opened = sink.open(identity, engine.session)
    try:
        return opened.peek() if isinstance(opened, Peeks) else None
    finally:
        opened.close()


def _named(
    source: Source, word: str, to: str, live: Progress | None, span: Span, otherwise: Mapping[str, int]
) -> Positions:
    """Positions for every partition; those that the user does not name are `otherwise`."""
    if to == FIRST:
        if live is None or live.first is None:
            raise UsageError(
                f"{word} first: the ledger of {span.live!r} does not say where it began. Next: name the positions."
            )
        # What retention has removed of it meanwhile is nobody's any more.
        found: Positions | None = {p: max(at, otherwise[p]) for p, at in live.first.items() if p in otherwise}
    else:
        found = target_positions(source, to, word)
    return {**otherwise, **(found or {})}


def _allowed(span: Span, live: Progress | None, until: Positions, stateful: bool) -> str | None:
    sink = as_sink(span.sink)
    what = sink.describe()
    if stateful:
        raise UsageError(
            f"the transform keeps state, and that of a part of the input is not that of the whole: what it would write "
            f"into {what} beside {span.live!r} is wrong. Next: backfill into another output (--into)."
        )
    manner, why = sink.beside() if isinstance(sink, SharesOutput) else (Beside.NO, "it does not say how")
    if manner is Beside.NO:
        raise UsageError(
            f"a backfill beside {span.live!r} into {what} is refused: {why}. Next: backfill into another output "
            "(--into)."
        )
    if manner is Beside.TO_WHERE_IT_STANDS:
        held = {} if live is None else live.positions or {}
        behind = [f"{p}: {at}, and it stands at {held[p]}" for p, at in sorted(until.items()) if at < held.get(p, 0)]
        if behind:
            raise UsageError(f"the range must reach to where {span.live!r} stands ({'; '.join(behind)}): {why}")
    if manner is not Beside.BELOW:
        return None
    if live is None:
        raise UsageError(
            f"{span.live!r} has no ledger yet, so nothing says where it will begin, and {why}. Next: run it first."
        )
    if live.first is not None and (overlap := _overlap(live.first, until)):
        raise UsageError(
            f"{span.live!r} delivers some of this range itself ({'; '.join(overlap)}), and {why}. Next: --until first, "
            "or another output (--into)."
        )
    _refuse_overlap(span.live, live, until)
    return span.live


def _overlap(first: Positions, end: Positions) -> list[str]:
    """A partition that the live pipeline does not know yet is one that it will read from its beginning."""
    return [
        f"{p}: it began at {_at(first, p)}, and this ends at {at}"
        for p, at in sorted(end.items())
        if at > _at(first, p)
    ]
