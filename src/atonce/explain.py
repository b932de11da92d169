"""What `explain` prints: which guarantee a source and a sink allow together, why, and where the promise ends."""

from __future__ import annotations

from collections.abc import Sequence

from atonce.guarantee import BOUNDARY, Guarantee, SinkTraits, SourceTraits, Verdict, strongest
from atonce.spark.planning.row_order import RowOrder, refusal, why_not

ORDER_WORDS = {
    Guarantee.NONE: "progress on a timer, output when it is ready: a crash may lose records, repeat them, or both",
    Guarantee.AT_MOST_ONCE: "progress first, then output: a crash in between loses records and never repeats one",
    Guarantee.AT_LEAST_ONCE: "output first, then progress: a crash in between repeats records and never loses one",
    Guarantee.EFFECTIVELY_ONCE: "output and progress in one atomic commit: a crash leaves both or neither",
}


def explanation(
    name: str,
    level: Guarantee,
    source: SourceTraits,
    sink: SinkTraits,
    checkpoint: str,
    state: Sequence[str] = (),
    order: RowOrder | None = None,
    runs: str = "",
    asked: Sequence[str] = (),
    chosen: Sequence[str] = (),
    steps: Sequence[tuple[str, str]] = (),
) -> str:
    """`state`: what feeds the pipeline's state and may come out otherwise when a batch is computed again.

    `order`: what the plan says of the rows of a key, where the sink depends on it. `runs`: what runs where, and why.
    `asked`: what the servers say. `chosen`: what is done one way or another because of it. `steps`: (name, words) of
    what is done to records before the transform, and of what becomes of those that cannot be delivered.
    """
    verdict = strongest(source, sink)
    unordered = why_not(order, source.ordered) if order is not None else None
    given = _verdict(verdict, level, state)
    lines = [
        f"pipeline {name}",
        f"  source      {source.name}",
        f"  sink        {sink.name}",
        f"  asked for   {level.value}: {ORDER_WORDS[level]}",
        f"  strongest   {verdict.strongest.value}",
        *[f"    because   {reason}" for reason in verdict.reasons],
        f"  verdict     {given if unordered is None else 'refused: ' + refusal(sink.name, unordered)}",
        *[f"    because   {reason}" for reason in state],
        *([f"  rows        {order.words}"] if order is not None and unordered is None else []),
        *[f"  {name:<11} {words}" for name, words in steps],
        f"  progress    {sink.ledger}",
        *([f"  runs        {runs}"] if runs else []),
        f"  plan        Spark's checkpoint in {checkpoint}",
        f"  without it  {_without_checkpoint(source)}",
        *[f"  you keep to {need}" for need in (*source.needs, *sink.needs)],
        *[f"  there       {line}" for line in chosen],
        *[f"  warning     {line}" for line in asked],
        f"  boundary    {BOUNDARY}",
    ]
    return "\n".join(lines)


def _verdict(verdict: Verdict, level: Guarantee, state: Sequence[str]) -> str:
    if not verdict.allows(level):
        return f"refused: ask for {verdict.strongest.value}"
    if state:
        return "refused, unless you say deterministic: true; or ask for at-least-once"
    return "given"


def _without_checkpoint(source: SourceTraits) -> str:
    if source.ordered:
        return "positions are ordered, so a stateless pipeline goes on from the ledger; a stateful one is refused"
    return "positions cannot be compared, so a lost checkpoint is refused until you reset the pipeline"
