"""`bench latency`: a steady trickle of records; how old each is when a read_committed reader gets it."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from atonce.local.child import Child
from atonce.local.scratch import scratch_directory
from bench import peers
from bench.contest import Contestant
from bench.copy import LAUNCHERS, Launch, Work, stopped_early
from bench.judge import Judge, NotDelivered
from bench.meter import Meter
from bench.results import Run

TICK_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    per_second: int = 2_000
    warm_s: float = 10.0
    measured_s: float = 20.0
    first_within_s: float = 120.0


def latency_contestants(work: Work, pace: Pace, chosen: list[str]) -> list[Contestant]:
    return [
        Contestant(label, lambda launch=launch: measure(work, pace, launch))  # type: ignore[misc]
        for key, (label, launch) in LAUNCHERS.items()
        if key in chosen
    ]


def measure(work: Work, pace: Pace, launch: Launch) -> Run:
    """Fresh topics; the contestant starts on a stream that already flows; what comes out after the warm-up counts."""
    judge = Judge(work.servers)
    name = f"bench-{uuid.uuid4().hex[:10]}"
    source, target = f"{name}-in", f"{name}-out"
    scratch = scratch_directory("bench")
    for topic in (source, target):
        judge.create(topic, work.partitions)
    mine = replace(work, source=source, per_batch=0)
    ended = threading.Event()
    writer = threading.Thread(target=_trickle, args=(work.servers, source, pace, work.size, ended), daemon=True)
    try:
        log = scratch / "contestant.log"
        with Child(launch(mine, target, name, scratch), env=peers.environment(), log=log, cwd=scratch) as child:
            meter = Meter([child.leash_pid], list(work.brokers)).start()
            writer.start()
            try:
                begin, ages = _read(work.servers, target, work.partitions, pace, lambda: stopped_early(child))
            except NotDelivered as error:
                words = log.read_text(errors="replace")[-500:].strip()
                raise NotDelivered(f"{error}{f'. Its last output: {words}' if words else ''}") from None
            finally:
                meter.stop()
                ended.set()
                writer.join(20)
            child.kill()
        cost = meter.cost(begin, begin + pace.measured_s)
        return _figures(pace, ages, cost.others, cost.cpu_s / cost.elapsed_s)
    finally:
        judge.delete(source, target)
        shutil.rmtree(scratch, ignore_errors=True)


def _figures(pace: Pace, ages_ms: list[float], others: float, cores: float) -> Run:
    wanted = pace.per_second * pace.measured_s
    if len(ages_ms) < 0.8 * wanted:
        raise NotDelivered(f"it fell behind: {len(ages_ms):,} of about {wanted:,.0f} records came out in time")
    cuts = statistics.quantiles(ages_ms, n=100)
    return Run(
        contestant="",
        round=0,
        others=others,
        figures={"p50 ms": cuts[49], "p99 ms": cuts[98], "max ms": max(ages_ms), "cores used": cores},
    )


def _trickle(servers: str, topic: str, pace: Pace, size: int, ended: threading.Event) -> None:
    """Each value begins with its moment of birth in nanoseconds; upper-casing leaves digits alone."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "enable.idempotence": True, "log_level": 2})
    filler = b"x" * max(0, size - 20)
    per_tick = max(1, round(pace.per_second * TICK_S))
    due, number = time.monotonic(), 0
    while not ended.is_set():
        for _ in range(per_tick):
            producer.produce(topic, key=b"%d" % number, value=b"%020d" % time.time_ns() + filler)
            number += 1
        producer.poll(0)
        due += per_tick / pace.per_second
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(10)


def _read(
    servers: str, topic: str, partitions: int, pace: Pace, alive: Callable[[], None]
) -> tuple[float, list[float]]:
    """(when measuring began, ages in milliseconds)."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "atonce-bench-judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    ages: list[float] = []
    begun, first, begin = time.monotonic(), 0.0, 0.0
    try:
        while True:
            messages = consumer.consume(500, timeout=0.05)
            now, wall_ns = time.monotonic(), time.time_ns()
            alive()
            if messages and not first:
                first = now
            if not first and now - begun > pace.first_within_s:
                raise NotDelivered(f"nothing came out within {pace.first_within_s:g} s")
            if not begin and first and now - first > pace.warm_s:
                begin = now
            if begin:
                ages += [(wall_ns - int(m.value()[:20])) / 1e6 for m in messages if m.error() is None]
                if now - begin > pace.measured_s:
                    return begin, ages
    finally:
        consumer.close()
