"""`bench broker`: the embedded broker and Apache Kafka under librdkafka: produce (idempotent, acks=all) and consume."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from atonce.errors import AtOnceError
from bench.contest import Contestant
from bench.judge import Judge, NotDelivered
from bench.meter import Meter
from bench.results import Run

PACED_S = 4.0
PACED_PER_SECOND = 1_000


@contextmanager
def embedded() -> Iterator[tuple[str, int]]:
    """As it is by default: fsync before the ack."""
    from atonce.broker.embedded import Broker

    with Broker() as broker:
        yield broker.servers, broker.pid


@contextmanager
def embedded_without_fsync() -> Iterator[tuple[str, int]]:
    """Apache Kafka's own default: the page cache is trusted."""
    from atonce.broker.embedded import Broker

    never = str(2**63 - 1)
    with Broker(settings={"log.flush.interval.messages": never, "log.flush.interval.ms": never}) as broker:
        yield broker.servers, broker.pid


# What looking at producers' records costs is seen beside a broker that believes them.
_TRUSTING = """
import sys
from atonce.broker.handlers import produce
from atonce.log import validation
from atonce.records.walk import Walked

async def look_at(*_):
    return {}

def believe(header, *_):
    return Walked(0, header.record_count, 0, header.base_timestamp, header.max_timestamp)

produce.look_at, validation._walk_records = look_at, believe
from atonce.cli.main import main
main()
"""


@contextmanager
def embedded_trusting() -> Iterator[tuple[str, int]]:
    """As by default, but for the records of a batch, which are not looked at: no broker to use."""
    from atonce.local.child import Child
    from atonce.local.scratch import scratch_directory

    data = scratch_directory("broker")
    command = [sys.executable, "-c", _TRUSTING, "broker", "--data", str(data), "--listen", "127.0.0.1:0"]
    try:
        with Child(command, scratch=data) as child:
            yield child.wait_for_line("ready on ", 60).removeprefix("ready on "), child.pid
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def apache() -> Iterator[tuple[str, int]]:
    from atonce.local.servers.kafka import ApacheKafka

    with ApacheKafka(settings={"broker.session.timeout.ms": "18000"}) as kafka:
        yield kafka.servers, kafka.pid()


BROKERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "embedded": ("embedded broker (fsync before ack)", embedded),
    "embedded-nofsync": ("embedded broker, no fsync", embedded_without_fsync),
    "embedded-trusting": ("embedded broker, records not looked at", embedded_trusting),
    "apache": ("Apache Kafka 4.3.1 (no fsync)", apache),
}


def broker_contestants(chosen: list[str], records: int, sizes: list[int]) -> list[Contestant]:
    return [
        Contestant(
            f"{label}, {size} B",
            lambda start=start, size=size: measure(start, max(10_000, records * 100 // max(size, 100)), size),  # type: ignore[misc]
        )
        for size in sizes
        for key, (label, start) in BROKERS.items()
        if key in chosen
    ]


def measure(start: Callable[[], Any], records: int, size: int) -> Run:
    with start() as (servers, pid):
        judge = Judge(servers)
        for topic in ("warm", "bulk", "paced"):
            judge.create(topic, 4)
        judge.fill("warm", min(records, 100_000), size)
        judge.count("warm")
        meter = Meter([pid]).start()
        # This process makes the load and started the broker: what neither uses is the others'.
        both = Meter([os.getpid()]).start()
        try:
            begin = time.monotonic()
            judge.fill("bulk", records, size)
            produced = time.monotonic()
            read = judge.count("bulk")
            consumed = time.monotonic()
            delays = _paced(servers, size)
        finally:
            meter.stop()
            both.stop()
        if read != records:
            raise NotDelivered(f"{read:,} of {records:,} records were read back")
        while_producing, while_consuming = meter.cost(begin, produced), meter.cost(produced, consumed)
        millions = records / 1e6
        return Run(
            contestant="",
            round=0,
            others=both.cost(begin, consumed).others,
            figures={
                "produced records/s": records / while_producing.elapsed_s,
                "produced MB/s": records * size / 1e6 / while_producing.elapsed_s,
                "consumed records/s": records / while_consuming.elapsed_s,
                "ack p50 ms": statistics.quantiles(delays, n=100)[49],
                "ack p99 ms": statistics.quantiles(delays, n=100)[98],
                "CPU s per million produced": while_producing.cpu_s / millions,
                "CPU s per million consumed": while_consuming.cpu_s / millions,
                "peak MB": meter.cost(begin, time.monotonic()).peak_mb,
            },
        )


def _paced(servers: str, size: int) -> list[float]:
    """Time from produce() to the acknowledgement, in milliseconds, at a pace that queues nothing."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all", "linger.ms": 0, "log_level": 2}
    )
    delays: list[float] = []
    failed: list[Any] = []
    value = b"x" * size

    def send() -> None:
        sent = time.perf_counter()

        def acknowledged(error: Any, _message: Any) -> None:
            if error is None:
                delays.append((time.perf_counter() - sent) * 1000)
            else:
                failed.append(error)

        producer.produce("paced", value, on_delivery=acknowledged)

    # An idempotent producer asks for its id first, and librdkafka tries again only every half second.
    send()
    if producer.flush(30):
        raise AtOnceError("the first paced record was not acknowledged within 30 s")
    delays.clear()
    due = time.monotonic()
    for _ in range(int(PACED_S * PACED_PER_SECOND)):
        send()
        due += 1 / PACED_PER_SECOND
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
    if producer.flush(30) or failed:
        raise AtOnceError(f"paced records were not acknowledged: {failed[:1]}")
    return delays
