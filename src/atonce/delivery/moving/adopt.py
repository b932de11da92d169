"""Moving in: a pipeline begins where a query with the engine's own connector ended.

That query's sink is told of a batch between `offsets/N` and `commits/N`. So a batch that was planned and is not
committed may be in its output wholly, in part or not at all, and only its owner can say what should become of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from atonce.delivery.abilities import KnowsItsEnds, Peeks, borders_of
from atonce.delivery.contract import Identity, Sink, Source
from atonce.delivery.engine import Engine
from atonce.delivery.progress import Positions, Progress
from atonce.errors import DataLossError, LedgerMismatch, RefusedError, UsageError
from atonce.guarantee import Guarantee

Unfinished = Literal["again", "done"]
CHOICES: tuple[Unfinished, ...] = ("again", "done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a stopped query left in its checkpoint."""

    path: str
    committed: int | None
    """Its newest batch whose sink had returned; None: there was none."""
    end: Positions
    """Where that batch ended; where the query began, if there was none."""
    unfinished: Positions | None = None
    """The end of one more batch, which was planned and not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    name: str
    positions: Positions
    left: Left

    def words(self) -> str:
        at = ", ".join(f"{place} at {at}" for place, at in sorted(self.positions.items()))
        batch = "its beginning" if self.left.committed is None else f"batch {self.left.committed}"
        return (
            f"{self.name} goes on after {batch} of {self.left.path}: {at}. It begins there with its next run.\n"
            "If the query ran with asyncProgressTrackingEnabled, it has delivered more than its checkpoint says: then "
            f"`atonce reset {self.name} --to OFFSETS` to where its output ends."
        )


def adopt(
    *,
    name: str,
    guarantee: Guarantee,
    fingerprint: str,
    source: Source,
    sink: Sink,
    left: Left,
    unfinished: Unfinished | None,
    checkpoint: str,
    engine: Engine,
) -> Adopted:
    """Records where the pipeline begins. Everything that can be refused is, before anything is made or fenced."""
    to = _compared(source, _chosen(left, unfinished))
    planned = engine.checkpoint(checkpoint, source.positions).planned()
    if planned is not None:
        raise RefusedError(
            f"{name!r} has a checkpoint of its own in {checkpoint}, which has planned batch {planned}: it has run "
            f"before, and does not begin with what {left.path} says. Next: adopt under a new name."
        )
    identity = Identity(
        name=name, instance=uuid.uuid4().hex[:12], guarantee=guarantee, fingerprint=fingerprint, source=source
    )
    opened = sink.open(identity, engine.session)
    try:
        if not isinstance(opened, Peeks):
            raise UsageError(
                f"{sink.describe()} cannot be asked for its ledger before it is claimed, which adopt needs"
            )
        for look in (opened.peek, opened.claim):  # the claim fences whoever runs it: only where nobody seems to
            recorded = look()
            if recorded is not None:
                raise _present(name, recorded)
        opened.progress(
            Progress(
                instance=identity.instance,
                query_id="",
                batch_id=-1,
                positions=to,
                source_ids=source.source_ids(),
                fingerprint=fingerprint,
                sequence=1,
                first=to,
                borders=borders_of(source, to),
            )
        )
        opened.settle()
    finally:
        opened.close()
    return Adopted(name=name, positions=to, left=left)


def _chosen(left: Left, unfinished: Unfinished | None) -> Positions:
    if left.unfinished is None:
        return left.end
    if unfinished is None:
        ends = left.unfinished
        spans = [f"{p}: {left.end.get(p, 0)} to {at}" for p, at in sorted(ends.items()) if at != left.end.get(p, 0)]
        count = sum(max(0, at - left.end.get(p, 0)) for p, at in ends.items())
        last = "the query's beginning" if left.committed is None else f"batch {left.committed}"
        number = 0 if left.committed is None else left.committed + 1
        raise RefusedError(
            f"{left.path}: batch {number} was planned and not committed, {count} offsets after {last} "
            f"({'; '.join(spans)}). Its output may be there wholly, in part or not at all. Next: look, then say "
            "--unfinished again (they are delivered once more; what the old sink wrote of them is there twice) or "
            "--unfinished done (they are passed over; what it did not write of them is missing)."
        )
    return left.end if unfinished == "again" else {**left.end, **left.unfinished}


def _compared(source: Source, to: Positions) -> Positions:
    """The same with partitions that came later, once every position is one that its log has.

    Compared with the end of the log and not with its last stable offset: that connector reads what is not committed,
    and a transaction that is still open may begin before the position.
    """
    if not isinstance(source, KnowsItsEnds):
        raise UsageError(f"{source.describe()} is not read by Spark's Kafka connector, so there is nothing to adopt")
    there = source.ends()
    _refuse_others(to, there)
    beyond = [f"{p}: read up to {at}, ends at {there[p][1]}" for p, at in sorted(to.items()) if at > there[p][1]]
    if beyond:
        raise DataLossError(
            f"logs end before what the query has read, so they were made again or cut: {'; '.join(beyond)}. Next: if "
            "the topic is another one now, begin with `atonce reset NAME --to earliest` instead of adopting."
        )
    gone = [f"{p}: read up to {at}, begins at {there[p][0]}" for p, at in sorted(to.items()) if at < there[p][0]]
    if gone:
        raise DataLossError(
            f"records that the query had not read yet were removed by retention: {'; '.join(gone)}. Next: begin with "
            "what is left, `atonce reset NAME --to earliest`, or name the positions with --to."
        )
    return {**{place: first for place, (first, _) in there.items()}, **to}


def _refuse_others(to: Positions, there: Mapping[str, tuple[int, int]]) -> None:
    if unread := sorted(set(to) - set(there)):
        raise UsageError(
            f"the query read {', '.join(unread)}, which this pipeline does not; it reads {', '.join(sorted(there))}. "
            "Next: let it read what the query read."
        )
    known = {place.rpartition("/")[0] for place in to}
    strangers = sorted({place.rpartition("/")[0] for place in there} - known)
    if strangers:
        raise UsageError(
            f"the pipeline reads {', '.join(strangers)}, of which the checkpoint says nothing; it knows "
            f"{', '.join(sorted(known)) or 'no topic'}. Next: let it read what the query read."
        )


def _present(name: str, recorded: Progress) -> LedgerMismatch:
    at = "positions that cannot be compared" if recorded.positions is None else str(dict(recorded.positions))
    what = "it was adopted, and has not run since" if recorded.batch_id < 0 else f"it holds batch {recorded.batch_id}"
    return LedgerMismatch(
        f"{name!r} has a ledger already: {what}, at {at}. Nothing was changed. Next: run it, move it with `atonce "
        f"reset {name} --to OFFSETS`, or adopt under another name."
    )
