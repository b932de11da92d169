"""More partitions than the process has file descriptors, and a data directory that somebody takes away."""

from __future__ import annotations

import resource
import shutil
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest

from atonce.broker.embedded import Broker
from atonce.local.child import Child
from atonce.records.record import build_batch
from tests.interop.broker.wire import Wire

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 3, 18, 19


def create(wire: Wire, topics: int, partitions: int) -> None:
    wire.ask(API_VERSIONS, 0)
    wanted = [{"name": f"t{i}", "num_partitions": partitions, "replication_factor": 1} for i in range(topics)]
    assert {one.error_code for one in wire.ask(CREATE_TOPICS, 5, topics=wanted, timeout=60_000).topics} == {0}


def produce(wire: Wire, topic: str, partitions: range) -> set[int]:
    batch = build_batch([(b"k", b"v")], timestamp_ms=int(time.time() * 1000))
    data = [{"name": topic, "partition_data": [{"index": i, "records": batch} for i in partitions]}]
    answer = wire.ask(PRODUCE, 9, acks=-1, timeout=60_000, topic_data=data)
    return {int(one.error_code) for one in answer.responses[0].partition_responses}


def count(wire: Wire, topic: str, partitions: range) -> int:
    """Records that a reader finds."""
    wanted = [{"partition": i, "fetch_offset": 0, "partition_max_bytes": 1000} for i in partitions]
    answer = wire.ask(
        FETCH,
        4,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=50_000_000,
        topics=[{"topic": topic, "partitions": wanted}],
    )
    return sum(bool(one.records) for one in answer.responses[0].partitions)


def test_partitions_are_not_limited_by_descriptors_and_all_survive_a_kill(tmp_path: Path) -> None:
    """600 partitions, 256 descriptors."""
    words = f"-m atonce.cli.main broker --data {tmp_path / 'data'} --listen 127.0.0.1:0"
    command = ["bash", "-c", f"ulimit -n 256; exec {sys.executable} {words}"]
    with Child(command) as child:
        with Wire(child.wait_for_line("ready on ", 60).removeprefix("ready on ")) as wire:
            wire.socket.settimeout(60)
            create(wire, 4, 150)
            for i in range(4):
                assert produce(wire, f"t{i}", range(150)) == {0}
        child.kill()
    with Child(command) as child:
        with Wire(child.wait_for_line("ready on ", 60).removeprefix("ready on ")) as wire:
            assert [count(wire, f"t{i}", range(150)) for i in range(4)] == [150] * 4
        assert psutil.Process(child.pid).num_fds() < 256


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 200, before[1]))
    try:
        broker = Broker().start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with broker:
        soft, hard = psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE)
        assert soft == min(hard, 1_048_576) if hard >= 0 else soft >= 1_048_576


def test_removed_data_directory_stops_acknowledgements() -> None:
    with Broker() as broker, Wire(broker.servers) as wire:
        create(wire, 1, 2)
        assert produce(wire, "t0", range(2)) == {0}
        shutil.rmtree(broker.data / "logs" / "t0-0")
        kafka_storage_error = 56
        first = produce(wire, "t0", range(1))
        assert first == {kafka_storage_error} and produce(wire, "t0", range(1)) == {kafka_storage_error}
        assert produce(wire, "t0", range(1, 2)) == {0}, "the other partition goes on"
        shutil.rmtree(broker.data / "logs")
        assert produce(wire, "t0", range(2)) == {kafka_storage_error}
        with pytest.raises(AssertionError):
            create(wire, 2, 1)


@pytest.mark.soak
def test_ten_thousand_partitions_start_after_a_kill_and_rest() -> None:
    with Broker() as broker, Wire(broker.servers) as wire:
        wire.socket.settimeout(300)
        create(wire, 100, 100)
        for i in range(100):
            assert produce(wire, f"t{i}", range(100)) == {0}
        broker.kill()
        began = time.monotonic()
        broker.start()
        took_s = time.monotonic() - began
        process = psutil.Process(broker.pid)
        before, since = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(20)
        busy = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - since)
        print(f"start {took_s:.1f} s, idle CPU {100 * busy:.2f} %, {process.num_fds()} descriptors")
        assert took_s < 15 and busy < 0.03
        with Wire(broker.servers) as again:
            assert [count(again, f"t{i}", range(100)) for i in range(100)] == [100] * 100


def test_broker_that_is_full_of_connections_refuses_more_and_serves_the_others() -> None:
    with Broker(settings={"max.connections": 20}) as broker:
        with Wire(broker.servers) as known:
            known.ask(API_VERSIONS, 0)
            host, _, port = broker.servers.rpartition(":")
            held = [socket.create_connection((host, int(port)), 10) for _ in range(40)]
            try:
                assert produce(known, "t", range(1)) == {3}
            finally:
                for one in held:
                    one.close()
