"""Which input record cannot be delivered: the failed batch is read again in ever smaller ranges until one is left.

A transform may drop the columns that say where a row came from, so the sink alone cannot tell. Only after a failure,
only for stateless pipelines over Kafka, about one small job per halving.
"""

from __future__ import annotations

from collections.abc import Callable

from atonce.delivery.progress import Plan

Fails = Callable[[str, int, int], bool]
"""(partition "topic/0", start, end) → whether a row of this range cannot be delivered."""
_MOST_PARTITIONS = 64


def locate(plan: Plan, fails: Fails) -> tuple[str, int] | None:
    """(partition, offset) of the first such record; None when no single range fails on its own."""
    if plan.start is None or plan.end is None:
        return None
    moved = [(p, plan.start.get(p, 0), at) for p, at in sorted(plan.end.items()) if at > plan.start.get(p, 0)]
    for partition, start, end in moved[:_MOST_PARTITIONS]:
        if fails(partition, start, end):
            while end - start > 1:
                middle = (start + end) // 2
                start, end = (start, middle) if fails(partition, start, middle) else (middle, end)
            return partition, start
    return None
