"""`bench price`: what the word costs, level beside level, over batch and record sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from atonce.bench.contest import Contestant
from atonce.bench.copy import MEGABYTES, RATE, Work, measure, ours
from atonce.bench.curve import curve
from atonce.bench.results import Spread, Summary

LEVELS = ("none", "at-least-once", "effectively-once")
_LABEL = re.compile(r"(?P<level>[\w-]+), batches of (?P<batch>[\d,]+), (?P<size>\d+) B")


def price_contestants(works: list[Work], levels: tuple[str, ...] = LEVELS) -> Iterator[Contestant]:
    """Every level on every batch and record size; levels next to each other, so that a noisy minute hits all."""
    for work in works:
        for level in levels:
            label = f"{level}, batches of {work.per_batch:,}, {work.size} B"
            yield Contestant(label, lambda work=work, level=level: measure(work, ours("arrow", level)))  # type: ignore[misc]


def whole_batches(records: int, per_batch: int) -> int:
    """Rounded up, for a warm-up. Without a transaction a batch becomes visible bit by bit while it is sent: if the
    warm-up ended in the middle of one, the rest of it would count with the time of its sending alone."""
    return -(-records // per_batch) * per_batch


def prices(found: list[Summary]) -> list[tuple[str, str, float]]:
    """(batches and size, weaker level, how much slower effectively-once is, as a share)."""
    rates: dict[str, dict[str, float]] = {}
    for summary in found:
        level, _, case = summary.contestant.partition(", ")
        if RATE in summary.figures:
            rates.setdefault(case, {})[level] = summary.figures[RATE].median
    return [
        (case, weaker, 1 - mine["effectively-once"] / mine[weaker])
        for case, mine in rates.items()
        for weaker in ("none", "at-least-once")
        if "effectively-once" in mine and weaker in mine
    ]


def curves(found: list[Summary]) -> list[str]:
    """Throughput over batch size, a line per level, as SVG; one drawing per record size."""
    lines: dict[int, dict[str, list[tuple[float, Spread]]]] = {}
    for summary in found:
        label = _LABEL.fullmatch(summary.contestant)
        if label and MEGABYTES in summary.figures:
            of_size = lines.setdefault(int(label["size"]), {})
            batch = float(label["batch"].replace(",", ""))
            of_size.setdefault(label["level"], []).append((batch, summary.figures[MEGABYTES]))
    return [curve(of_size, f"MB/s, records of {size} B", "records per micro-batch") for size, of_size in lines.items()]
