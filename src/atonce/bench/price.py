"""`bench price` and `bench growth`: what the word costs, and what happens when things get larger."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from atonce.bench.contest import Contestant
from atonce.bench.copy import RATE, Launch, Work, measure
from atonce.bench.judge import Judge
from atonce.bench.results import Run, Summary

HISTORY = 9
LEVELS = ("none", "at-least-once", "effectively-once")


def ours(kind: str, level: str, master: str = "local[2]") -> Launch:
    def launch(work: Work, target: str, name: str, scratch: Path) -> list[str]:
        arguments = [kind, level, work.servers, work.source, target, name, str(scratch), str(work.per_batch), master]
        return [sys.executable, "-m", "atonce.bench.subject", *arguments]

    return launch


def price_contestants(works: list[Work], levels: tuple[str, ...] = LEVELS) -> Iterator[Contestant]:
    """Every level on every batch and record size; levels next to each other, so that a noisy minute hits all."""
    for work in works:
        for level in levels:
            label = f"{level}, batches of {work.per_batch:,}, {work.size} B"
            yield Contestant(label, lambda work=work, level=level: measure(work, ours("arrow", level)))  # type: ignore[misc]


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


def growth_contestants(base: Work, judge: Judge) -> list[Contestant]:
    """More partitions, a longer history, many small batches, and a cluster instead of one process."""
    found = []
    for partitions in (1, 4, 16, 64):
        topic = f"growth-{partitions}"
        judge.create(topic, partitions)
        judge.fill(topic, base.records, base.size)
        work = replace(base, source=topic, partitions=partitions)
        found.append(_copy(f"{partitions} partition(s)", work))
    longer = replace(base, source="growth-long", records=base.records * (HISTORY + 1), partitions=4)
    judge.create(longer.source, 4)
    judge.fill(longer.source, longer.records, longer.size)
    # Only the last part is measured: what came before is history by then.
    found.append(
        _copy(
            f"4 partitions, after {HISTORY} times as much history",
            replace(longer, warm=base.records * HISTORY + base.warm),
        )
    )
    small = replace(base, source="growth-4", per_batch=max(1_000, base.records // 1_000), warm=base.records // 4)
    found.append(_copy("1,000 small batches", small))
    found.append(Contestant("Spark standalone, two workers", lambda: _on_cluster(replace(base, source="growth-4"))))
    return found


def _copy(label: str, work: Work) -> Contestant:
    return Contestant(label, lambda: measure(work, ours("arrow", "effectively-once")))


def _on_cluster(work: Work) -> Run:
    from atonce.apache.spark_cluster import SparkCluster

    with SparkCluster(2, cores=1, memory="1g") as cluster:
        return measure(work, ours("arrow", "effectively-once", cluster.master))
