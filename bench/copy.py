"""`bench copy`: Kafka → upper-case → Kafka, keyed. Records per second that a read_committed reader sees appear."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from atonce.local.child import Child
from atonce.local.scratch import scratch_directory
from atonce.local.servers.pins import FLINK_VERSION
from bench import peers
from bench.contest import Contestant
from bench.judge import Judge, NotDelivered, Point
from bench.meter import Meter
from bench.results import Run

RATE = "records/s"
CPU = "CPU s per million"
MEMORY = "peak MB"
MEGABYTES = "MB/s"
FIRST_OUTPUT = "first output s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One copy to be done. The first `warm` records are not measured: compilers and caches are cold."""

    servers: str
    source: str
    partitions: int
    records: int
    warm: int
    size: int
    per_batch: int
    brokers: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    """Processes that work for the contestant beside those that it starts itself."""
    leftovers: list[str] = field(default_factory=list)
    """Outputs of the contestants before; shared by all works of a benchmark.

    Each goes when the next contestant begins to write. A virtual machine gives free memory back to its host, and to get
    it again costs more than filling it. Deleted any sooner, the memory would still be there for whoever starts quickly,
    and no longer for whoever takes 20 s.
    """
    timeout_s: float = 600.0


Launch = Callable[[Work, str, str, Path], list[str]]
"""(work, output topic, name of this run, scratch) → command."""


def copy_contestants(work: Work, chosen: list[str]) -> list[Contestant]:
    """Those of `LAUNCHERS` that were asked for, in that table's order."""
    return [
        Contestant(label, lambda launch=launch: measure(work, launch))  # type: ignore[misc]
        for key, (label, launch) in LAUNCHERS.items()
        if key in chosen
    ]


def warm_up(work: Work) -> None:
    """A broker that has just started is slower for its first gigabyte or two, to the cost of whoever comes first."""
    with run_until(work, _relay, work.records):
        pass


@contextmanager
def swept(servers: str) -> Iterator[list[str]]:
    """Topics of a benchmark, deleted at its end, whatever ended it."""
    topics: list[str] = []
    try:
        yield topics
    finally:
        Judge(servers).delete(*topics)


Figures = Callable[[Work, list[Point], Meter], dict[str, float]]
"""What is read off a run's visible steps, beside what it cost."""


def measure(work: Work, launch: Launch, extra: Figures | None = None) -> Run:
    """One whole run: the contestant until all is visible, and the count."""
    with run_until(work, launch, work.records) as (target, steps, meter):
        delivered = Judge(work.servers).count(target)
        if delivered < work.records:
            raise NotDelivered(f"{delivered:,} of {work.records:,} records arrived")
        run = figures(work, steps, meter, delivered)
        return replace(run, figures=run.figures | extra(work, steps, meter)) if extra else run


@contextmanager
def run_until(
    work: Work, launch: Launch, records: int, settle_s: float = 1.5
) -> Iterator[tuple[str, list[Point], Meter]]:
    """A contestant into a fresh topic, killed when so many records are visible: (the topic, its steps, the cost)."""
    with fresh_output(work) as (name, target, scratch):
        log = scratch / "contestant.log"
        with Child(launch(work, target, name, scratch), env=peers.environment(), log=log, cwd=scratch) as child:
            steps, meter = watched(work, child, target, records, settle_s)
            child.kill()
        yield target, steps, meter


@contextmanager
def fresh_output(work: Work) -> Iterator[tuple[str, str, Path]]:
    """For one run: a name that nobody had, a topic, and a directory that is gone afterwards."""
    judge = Judge(work.servers)
    name = f"bench-{uuid.uuid4().hex[:10]}"
    target = f"{name}-out"
    scratch = scratch_directory("bench")
    judge.create(target, work.partitions)
    try:
        yield name, target, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        work.leftovers.extend(judge.topics(name))  # last: it fails where the broker is gone


def watched(work: Work, child: Child, target: str, records: int, settle_s: float = 1.5) -> tuple[list[Point], Meter]:
    """The steps in which so many records became visible, and what they cost."""
    judge = Judge(work.servers)
    meter = Meter([child.leash_pid, *work.cluster], list(work.brokers)).start()
    try:
        steps = judge.watch(
            target, records, work.timeout_s, lambda: stopped_early(child), lambda: make_room(work), settle_s
        )
    finally:
        meter.stop()
    return steps, meter


def make_room(work: Work) -> None:
    gone, work.leftovers[:] = list(work.leftovers), []  # never twice: a topic that is not there cannot be deleted
    Judge(work.servers).delete(*gone)


def figures(work: Work, steps: list[Point], meter: Meter, delivered: int) -> Run:
    """From the first visible step at or after the warm-up to the last."""
    begin = next((step for step in steps if step.records >= work.warm), steps[0])
    end = steps[-1]
    if end.at <= begin.at:
        raise NotDelivered("everything became visible in one step: give more --records, or a smaller --warm")
    cost = meter.cost(begin.at, end.at)
    moved = end.records - begin.records
    rate = moved / cost.elapsed_s
    return Run(
        contestant="",
        round=0,
        others=cost.others,
        figures={
            RATE: rate,
            MEGABYTES: rate * work.size / 1e6,
            CPU: cost.cpu_s / (moved / 1e6),
            "of it JVM": cost.jvm_cpu_s / (moved / 1e6),
            MEMORY: cost.peak_mb,
            "grown MB": cost.grown_mb,
            "broker CPU s per million": cost.broker_cpu_s / (moved / 1e6),
            FIRST_OUTPUT: steps[1].at - steps[0].at,
            "delivered twice": float(delivered - work.records),
        },
    )


def stopped_early(child: Child) -> None:
    """Raises when a contestant has ended by itself."""
    if not child.running:
        words = child.log.read_text(errors="replace")[-800:] if child.log and child.log.exists() else ""
        raise NotDelivered(f"it ended too early. Its last output: {words}")


def ours(kind: str, level: str, master: str = "local[2]", run_in: str | None = None) -> Launch:
    """`run_in`: a topic that the same session copies first, in small batches (`subject`)."""

    def launch(work: Work, target: str, name: str, scratch: Path) -> list[str]:
        arguments = [kind, level, work.servers, work.source, target, name, str(scratch), str(work.per_batch), master]
        return [sys.executable, "-m", "bench.subject", *arguments, *([run_in] if run_in else [])]

    return launch


def _spark(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    return peers.spark(work.servers, work.source, target, scratch / "checkpoint", work.per_batch)


def _librdkafka(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    return peers.librdkafka_loop(work.servers, work.source, target, name, 10_000, 100)


def _java(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    return peers.java_loop(work.servers, work.source, target, name, 10_000, 100)


def _streams(commit_ms: int) -> Launch:
    def launch(work: Work, target: str, name: str, scratch: Path) -> list[str]:
        return peers.streams(work.servers, work.source, target, name, commit_ms, scratch / "state")

    return launch


def _flink(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    return peers.flink(work.servers, work.source, target, name, 1000, scratch / "checkpoint")


def _quix(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    return peers.quix(work.servers, work.source, target, name, 1.0, scratch / "state")


def _relay(work: Work, target: str, name: str, scratch: Path) -> list[str]:
    return [sys.executable, "-m", "bench.relay", work.servers, work.source, target]


LAUNCHERS: dict[str, tuple[str, Launch]] = {
    "arrow": ("AtOnce map_arrow, effectively once", ours("arrow", "effectively-once")),
    "dataframe": ("AtOnce DataFrame/SQL, effectively once", ours("dataframe", "effectively-once")),
    "rows": ("AtOnce DataFrame/SQL in Spark's JVM, effectively once", ours("rows", "effectively-once")),
    "spark": (f"Spark {peers.SPARK_VERSION} JVM connector, at least once", _spark),
    "librdkafka": ("librdkafka loop in Python, transactions of 10 k", _librdkafka),
    "java": ("Java loop, transactions of 10 k", _java),
    "streams": ("Kafka Streams, exactly_once_v2, commit 100 ms", _streams(100)),
    "streams-1s": ("Kafka Streams, exactly_once_v2, commit 1 s", _streams(1000)),
    "flink": (f"Flink {FLINK_VERSION}, exactly once, checkpoint 1 s", _flink),
    "quix": (f"Quix Streams {peers.QUIX_VERSION}, exactly once, commit 1 s", _quix),
    "relay": ("the broker's own limit: batches relayed unopened, no guarantee", _relay),
}
OURS = ("arrow", "dataframe", "rows")
