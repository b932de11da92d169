"""`bench growth`: more partitions, a longer log, many small batches, a cluster, and the start from nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from bench.contest import Contestant
from bench.copy import FIRST_OUTPUT, MEMORY, Work, measure, ours, run_until, warm_up
from bench.judge import Judge, Point
from bench.meter import Meter
from bench.results import Run
from bench.subject import RUN_IN_BATCH

RUN_IN = "growth-run-in"
PARTITIONS = (1, 4, 16, 64)
LONG = 10
SMALL_BATCHES = 1_000
COLD_RECORDS = 1_000
LONGER_ON_A_CLUSTER = 4
RUN_IN_RECORDS = 100 * RUN_IN_BATCH


@dataclass(frozen=True, slots=True)
class Inputs:
    """Input topics, noted so that they can be deleted in the end."""

    judge: Judge
    topics: list[str]

    def fill(self, work: Work) -> None:
        self.judge.create(work.source, work.partitions)
        self.topics.append(work.source)
        self.judge.fill(work.source, work.records, work.size)


def growth_contestants(base: Work, inputs: Inputs, parts: Sequence[str]) -> list[Contestant]:
    """Those of some parts. Fills every input first, so that nothing is produced while somebody is measured."""
    warming = replace(base, source="growth-warm-up")
    inputs.fill(warming)
    warm_up(warming)
    return [contestant for part in parts for contestant in PARTS[part](base, inputs)]


def _partitions(base: Work, inputs: Inputs) -> Iterator[Contestant]:
    for partitions in PARTITIONS:
        work = replace(base, source=f"growth-{partitions}", partitions=partitions)
        inputs.fill(work)
        yield _copy(f"{partitions} partition{'s' if partitions > 1 else ''}", work)


def _cluster(base: Work, inputs: Inputs) -> Iterator[Contestant]:
    records = base.records * LONGER_ON_A_CLUSTER
    work = replace(base, source="growth-cluster", records=records, warm=records * 2 // 3)
    inputs.fill(work)
    inputs.fill(replace(base, source=RUN_IN, records=RUN_IN_RECORDS))
    yield Contestant("4 partitions, local[2]", lambda: _run_in(work, "local[2]"))
    for cores in dict.fromkeys((1, os.cpu_count() or 1)):
        words = f"{cores} core{'s' if cores > 1 else ''} each"
        label = f"4 partitions, Spark standalone, two workers, {words}"
        yield Contestant(label, lambda cores=cores: _on_cluster(work, cores))  # type: ignore[misc]


def _history(base: Work, inputs: Inputs) -> Iterator[Contestant]:
    work = replace(base, source="growth-long", records=base.records * LONG)
    inputs.fill(work)
    yield Contestant(f"{work.records:,} records, batches of {work.per_batch:,}", lambda: _many(work))


def _batches(base: Work, inputs: Inputs) -> Iterator[Contestant]:
    # A fifth more than counted, so that the first hundreds of batches, in which the JVM compiles, are not compared.
    per_batch = base.records * 4 // 5 // SMALL_BATCHES
    work = replace(base, source="growth-batches", per_batch=per_batch, warm=base.records // 5)
    inputs.fill(work)
    yield Contestant(f"{SMALL_BATCHES:,} batches of {per_batch:,}", lambda: _many(work))


def _cold(base: Work, inputs: Inputs) -> Iterator[Contestant]:
    work = replace(base, source="growth-cold", records=COLD_RECORDS)
    inputs.fill(work)
    yield Contestant("`atonce run` from nothing", lambda: cold_start(work))


PARTS = {"partitions": _partitions, "cluster": _cluster, "history": _history, "batches": _batches, "cold": _cold}


def _copy(label: str, work: Work) -> Contestant:
    return Contestant(label, lambda: measure(work, ours("arrow", "effectively-once")))


def _run_in(work: Work, master: str) -> Run:
    """Executors are JVMs of their own, and each sees half of the tasks: what counts is what a stream is most of its
    life, and not how long several JVMs take to become what one is sooner."""
    run = measure(work, ours("arrow", "effectively-once", master, RUN_IN))
    return replace(run, figures={name: value for name, value in run.figures.items() if name != FIRST_OUTPUT})


def _on_cluster(work: Work, cores: int) -> Run:
    """One core each makes as many tasks at once as local[2] has; the machine's own number is a worker's default."""
    from atonce.local.servers.spark_cluster import SparkCluster

    with SparkCluster(2, cores=cores, memory="1g") as cluster:
        return _run_in(replace(work, cluster=cluster.pids), cluster.master)


def _many(work: Work) -> Run:
    """Beside the rate, what a batch costs early and late in the same run: what lies between is its history."""
    return measure(work, ours("arrow", "effectively-once"), _by_quarter)


def _by_quarter(work: Work, steps: list[Point], meter: Meter) -> dict[str, float]:
    """Whether a batch costs more the more there were before it: the first and the last quarter after the warm-up."""
    begin = next(step for step in steps if step.records >= work.warm)
    end = steps[-1]
    counted = end.records - begin.records

    def batch(first: float, last: float) -> tuple[float, float]:
        marks = [
            next(step for step in steps if step.records >= begin.records + part * counted) for part in (first, last)
        ]
        batches = (marks[1].records - marks[0].records) / work.per_batch
        cost = meter.cost(marks[0].at, marks[1].at)
        return cost.elapsed_s * 1000 / batches, cost.cpu_s * 1000 / batches

    early, early_cpu = batch(0.0, 0.25)
    late, late_cpu = batch(0.75, 1.0)
    return {
        "ms per batch, first quarter": early,
        "ms per batch, last quarter": late,
        "CPU ms per batch, first quarter": early_cpu,
        "CPU ms per batch, last quarter": late_cpu,
    }


def cold_start(work: Work) -> Run:
    """From launching `atonce run` on a file, as a user does, until a read_committed reader could see a record."""
    with run_until(work, _atonce_run, 1, settle_s=0.2) as (_, steps, meter):
        begin, first = steps[0].at, steps[1].at
        cost = meter.cost(begin, first)
        figures = {FIRST_OUTPUT: first - begin, "CPU s until then": cost.cpu_s, MEMORY: cost.peak_mb}
        return Run(contestant="", round=0, others=cost.others, figures=figures)


def _atonce_run(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    described = {
        "name": name,
        "guarantee": "effectively-once",
        "source": {"kafka": {"topic": work.source}},
        "transform": "SELECT key, upper(CAST(value AS STRING)) AS value FROM input",
        "sink": {"kafka": {"topic": target}},
    }
    file = scratch / "pipeline.yaml"
    file.write_text(yaml.safe_dump(described))
    return [sys.executable, "-m", "atonce", "run", str(file), "--servers", work.servers]
