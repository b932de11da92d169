"""How much of what is there becomes one micro-batch, and how a micro-batch is cut into tasks. No I/O.

Both follow Spark's connector: a limit is shared among partitions in proportion to what each has to offer, and a range
is cut so that tasks are about even. Cutting depends on start and end alone, so a replayed batch is cut the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from atonce.client.offsets import TopicPartition

TASK_ROWS = 50_000
"""Ranges shorter than this share a task, because starting one costs about what so many records cost."""
TASKS_KEPT = 16
"""But never so many of them that fewer tasks than this are left: there may be cores, and records may be large."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets start <= offset < end of one partition."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    """A partition that `start` does not know is new: this batch only notes where it begins, the next one reads."""
    return [Range(tp, start[tp], end[tp]) for tp in sorted(end) if tp in start and end[tp] > start[tp]]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """`end`, moved back so that at most `most` offsets lie between, shared in proportion; never without progress."""
    sizes = {tp: end[tp] - start[tp] for tp in end if tp in start and end[tp] > start[tp]}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    share = {tp: most * size / total for tp, size in sizes.items()}
    granted = {tp: math.floor(part) for tp, part in share.items()}
    # What rounding left over goes to the partitions that lost most by it.
    left = most - sum(granted.values())
    for tp in sorted(share, key=lambda tp: (granted[tp] - share[tp], tp))[:left]:
        granted[tp] += 1
    return {tp: start[tp] + granted[tp] if tp in granted else at for tp, at in end.items()}


def cut(parts: list[Range], *, at_least: int | None = None, max_records: int | None = None) -> list[Range]:
    """First so that no range is longer than `max_records`, then so that there are about `at_least` of them."""
    if max_records is not None:
        parts = [piece for part in parts for piece in _pieces(part, math.ceil(part.size / max_records))]
    if at_least is None or len(parts) >= at_least or not parts:
        return parts
    total = sum(part.size for part in parts)
    # As Spark's connector: ranges that deserve less than one task stay whole and leave their share to the others.
    small = {part for part in parts if part.size * at_least / total < 1}
    large = [part for part in parts if part not in small]
    tasks, size = max(at_least - len(small), len(large)), sum(part.size for part in large)
    result = [
        piece
        for part in parts
        for piece in ([part] if part in small else _pieces(part, max(1, round(part.size * tasks / size))))
    ]
    return sorted(result)


def packed(parts: list[Range]) -> list[tuple[Range, ...]]:
    """Short ranges of a topic with many partitions, neighbours together: one element per task."""
    most = min(TASK_ROWS, sum(part.size for part in parts) // TASKS_KEPT)
    tasks: list[list[Range]] = []
    room = 0
    for part in parts:
        if not tasks or part.size > room:
            tasks.append([])
            room = most
        tasks[-1].append(part)
        room -= part.size
    return [tuple(task) for task in tasks]


def _pieces(part: Range, count: int) -> list[Range]:
    count = min(count, part.size)
    marks = [part.start + part.size * number // count for number in range(count + 1)]
    return [Range(part.tp, low, high) for low, high in pairwise(marks)]
