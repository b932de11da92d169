"""Moving a stopped pipeline to other positions: ledger and checkpoint together.

The ledger moves first. Dying in between leaves a checkpoint that disagrees with it, which the next start notices: it
goes on from the ledger, or is refused until the reset is repeated.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from atonce.delivery.abilities import StartsAnywhere, borders_of
from atonce.delivery.contract import Identity, Sink, Source
from atonce.delivery.engine import Engine
from atonce.delivery.progress import Positions, Progress
from atonce.errors import LedgerMismatch, UsageError
from atonce.guarantee import Guarantee


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
            for place in sorted(set(self.before) | set(self.after)):
                old, new = self.before.get(place), self.after.get(place)
                lines.append(f"  {place}: {old} → {new}  {_meaning(old, new)}")
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
        try:
            recorded = opened.claim()
            if recorded is not None:
                sequence, before = recorded.sequence, recorded.positions
        except LedgerMismatch as foreign:
            sequence, before = foreign.sequence, str(foreign)
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
                first=to,
                borders=borders_of(source, to),
            )
        )
        opened.settle()
        return engine.checkpoint(checkpoint, source.positions).set_aside()
    finally:
        opened.close()


def target_positions(source: Source, to: str) -> Positions | None:
    """`earliest`, `latest`, or offsets as JSON ({"orders": {"0": 5}}) or as orders/0=5,orders/1=7."""
    if not source.traits().ordered:
        if to != "earliest":
            raise UsageError(f"positions of {source.describe()} cannot be named, so it can only be reset --to earliest")
        return None
    if to not in ("earliest", "latest"):
        named = _offsets(to)
        _refuse_unknown(named, source.first_positions() or {})
        return named
    if not isinstance(source, StartsAnywhere):
        raise UsageError(f"{source.describe()} cannot be asked for its {to}. Next: name positions with --to.")
    return source.starting(to).first_positions()


def _refuse_unknown(named: Positions, known: Positions) -> None:
    unknown = sorted(set(named) - set(known))
    if unknown:
        raise UsageError(f"{', '.join(unknown)} is not part of the input, which is {', '.join(sorted(known))}")


def _offsets(text: str) -> dict[str, int]:
    """Place → position: orders/0=5,orders/1=7 or Spark's {"orders": {"0": 5}}."""
    try:
        if text.lstrip().startswith("{"):
            nested = json.loads(text)
            return {f"{topic}/{index}": int(at) for topic, parts in nested.items() for index, at in parts.items()}
        pairs = (pair.strip().partition("=") for pair in text.split(","))
        return {place.strip(): int(at) for place, _, at in pairs}
    except (ValueError, AttributeError):
        raise UsageError(
            "--to takes earliest, latest, or offsets such as orders/0=5,orders/1=7 or "
            f'{{"orders": {{"0": 5}}}}; got {text!r}'
        ) from None


def _meaning(old: int | None, new: int | None) -> str:
    if old is None or new is None or old == new:
        return ""
    if new < old:
        return f"{old - new} records are delivered again"
    return f"{new - old} records are never delivered"
