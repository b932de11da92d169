"""Moving a stopped pipeline to other positions: ledger and checkpoint together.

The ledger moves first. Dying in between leaves a checkpoint that disagrees with it, which the next start notices: it
goes on from the ledger, or is refused until the reset is repeated.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from atonce.delivery.abilities import StartsAnywhere, StartsAtTime, borders_of
from atonce.delivery.contract import Identity, Sink, Source
from atonce.delivery.engine import Engine
from atonce.delivery.progress import Positions, Progress
from atonce.errors import LedgerMismatch, UsageError
from atonce.guarantee import Guarantee

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.,+Z-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """What a reset would do, before it does it."""

    name: str
    before: Positions | str | None
    after: Positions | None
    checkpoint: str

    def words(self) -> str:
        lines = [f"pipeline {self.name}"]
        if isinstance(self.before, str) or self.before is None or self.after is None:
            lines += [
                f"  from {self.before or 'nothing recorded'}",
                f"  to   {self.after or 'the beginning of its input'}",
            ]
            lines.append("  everything from there on is delivered; what the output already holds of it is there twice")
        else:
            for partition in sorted(set(self.before) | set(self.after)):
                old, new = self.before.get(partition), self.after.get(partition)
                lines.append(f"  {partition}: {old} → {new}  {_meaning(old, new)}")
        lines.append(f"  the checkpoint {self.checkpoint} is set aside, and with it any state")
        return "\n".join(lines)


def rewind(
    *,
    name: str,
    guarantee: Guarantee,
    fingerprint: str,
    source: Source,
    sink: Sink,
    to: Positions | None,
    partial: bool = False,
    checkpoint: str,
    engine: Engine,
    agree: Callable[[Rewind], None],
) -> str | None:
    """Fences whoever runs it, asks `agree` (which raises to decline), then moves. Returns where the checkpoint went."""
    identity = Identity(
        name=name,
        instance=uuid.uuid4().hex[:12],
        guarantee=guarantee,
        fingerprint=fingerprint,
        source=source,
    )
    opened = sink.open(identity, engine.session)
    try:
        sequence = 0
        before: Positions | str | None = None
        began: Positions | None = {}
        try:
            recorded = opened.claim()
            if recorded is not None:
                sequence, before, began = recorded.sequence, recorded.positions, recorded.first
        except LedgerMismatch as foreign:
            sequence, before, began = foreign.sequence, str(foreign), None
        if partial and to is not None:
            # What is not named stays where it is.
            kept = before if before is not None and not isinstance(before, str) else source.first_positions()
            to = {**(kept or {}), **to}
        agree(Rewind(name=name, before=before, after=to, checkpoint=checkpoint))
        opened.progress(
            Progress(
                instance=identity.instance,
                query_id="",
                batch_id=-1,
                positions=to,
                source_ids=source.source_ids(),
                fingerprint=fingerprint,
                sequence=sequence + 1,
                first=_lowest(began, to),
                borders=borders_of(source, to),
            )
        )
        opened.settle()
        return engine.checkpoint(checkpoint, source.positions).set_aside()
    finally:
        opened.close()


def _lowest(began: Positions | None, to: Positions | None) -> Positions | None:
    """Where the pipeline began: what it delivered before a reset stays in the output."""
    if began is None or to is None:
        return None
    return {place: min(began.get(place, at), at) for place, at in to.items()}


def target_positions(source: Source, to: str, word: str = "--to") -> Positions | None:
    """`earliest`, `latest`, a time such as 2026-01-31T12:00:00Z, or offsets as JSON ({"orders": {"0": 5}}) or as
    orders/0=5,orders/1=7."""
    if not source.traits().ordered:
        if to != "earliest":
            raise UsageError(f"positions of {source.describe()} cannot be named: {word} is `earliest` or nothing")
        return None
    at_ms = time_named(to, word)
    if at_ms is not None:
        if not isinstance(source, StartsAtTime):
            raise UsageError(f"{source.describe()} has no times to begin at. Next: name positions with {word}.")
        return source.starting_at(at_ms).first_positions()
    if to not in ("earliest", "latest"):
        named = _offsets(to, word)
        _refuse_unknown(named, source.first_positions() or {})
        return named
    if not isinstance(source, StartsAnywhere):
        raise UsageError(f"{source.describe()} cannot be asked for its {to}. Next: name positions with {word}.")
    return source.starting(to).first_positions()


def time_named(to: str, word: str = "--to") -> int | None:
    """Milliseconds since 1970 for ISO 8601 with its zone; without one it would mean another time on each machine."""
    if not _TIME.fullmatch(to.strip()):
        return None
    try:
        at = datetime.fromisoformat(to.strip())
    except ValueError:
        raise UsageError(f"{word} {to!r} is not a time: expected such as 2026-01-31T12:00:00Z") from None
    if at.tzinfo is None:
        raise UsageError(f"{word} {to!r} names no time zone. Next: {to.strip()}Z for UTC, or with +01:00 and the like.")
    return int(at.timestamp() * 1000)


def _refuse_unknown(named: Positions, known: Positions) -> None:
    unknown = sorted(set(named) - set(known))
    if unknown:
        raise UsageError(f"{', '.join(unknown)} is not part of the input, which is {', '.join(sorted(known))}")


def _offsets(text: str, word: str) -> dict[str, int]:
    """Place → position: orders/0=5,orders/1=7 or Spark's {"orders": {"0": 5}}."""
    try:
        if text.lstrip().startswith("{"):
            nested = json.loads(text)
            return {f"{topic}/{index}": int(at) for topic, parts in nested.items() for index, at in parts.items()}
        pairs = (pair.strip().partition("=") for pair in text.split(","))
        return {partition.strip(): int(at) for partition, _, at in pairs}
    except (ValueError, AttributeError):
        raise UsageError(
            f"{word} takes earliest, latest, a time such as 2026-01-31T12:00:00Z, or offsets, orders/0=5,orders/1=7 "
            f'or {{"orders": {{"0": 5}}}}; got {text!r}'
        ) from None


def _meaning(old: int | None, new: int | None) -> str:
    if old is None or new is None or old == new:
        return ""
    if new < old:
        return f"{old - new} records are delivered again"
    return f"{new - old} records are never delivered"
