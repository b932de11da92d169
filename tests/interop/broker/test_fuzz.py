"""Thousands of requests that nobody should send: the broker stays up and small, and serves its good clients meanwhile.

The marks are those of a broker for several people: memory below 300 MB over the idle broker, and no other client waits
longer than a second, while 2,000 connections are held and 100,000 requests over all API versions come in.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from atonce.broker.embedded import Broker
from atonce.records.record import build_batch
from tests.interop.broker import fuzz
from tests.interop.broker.silent import Memory, Silent, fill
from tests.interop.broker.wire import Wire

SETTINGS = {"max.partitions": 400, "max.connections.per.ip": 4000}


@dataclass
class GoodClient:
    """Produces and reads back what it produced, again and again, and takes the time of each answer."""

    servers: str
    waits_s: list[float] = field(default_factory=list)
    problem: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> GoodClient:
        self._wire = Wire(self.servers, "good")
        self._wire.socket.settimeout(60)
        self._ask(3, 9, topics=[{"name": "good"}], allow_auto_topic_creation=True)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._wire.close()

    def _ask(self, api_key: int, version: int, /, **values: object) -> object:
        began = time.monotonic()
        answer = self._wire.ask(api_key, version, **values)
        self.waits_s.append(time.monotonic() - began)
        return answer

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.wait(0.01):
                self._round(number)
                number += 1
        except BaseException as error:
            self.problem = error

    def _round(self, number: int) -> None:
        batch = build_batch([(b"k", b"%d" % number)], timestamp_ms=int(time.time() * 1000))
        data = [{"name": "good", "partition_data": [{"index": 0, "records": batch}]}]
        answer = self._ask(0, 9, acks=-1, timeout=1000, topic_data=data)
        one = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        assert (one.error_code, one.base_offset) == (0, number)
        wanted = {"partition": 0, "fetch_offset": number, "partition_max_bytes": 10_000}
        topics = [{"topic": "good", "partitions": [wanted]}]
        got = self._ask(1, 4, replica_id=-1, max_wait=0, min_bytes=1, max_bytes=10_000, topics=topics)
        assert b"%d" % number in bytes(got.responses[0].partitions[0].records)  # type: ignore[attr-defined]


@contextlib.contextmanager
def held_connections(servers: str, count: int) -> Iterator[list[socket.socket]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 500)), hard))
    host, _, port = servers.rpartition(":")
    held = [socket.create_connection((host, int(port)), 30) for _ in range(count)]
    try:
        yield held
    finally:
        for one in held:
            one.close()


def is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def attacked(broker: Broker, seed: int, count: int, connections: int = 16) -> float:
    """Send them from a process of their own; returns the most memory that the broker took over what it had before."""
    command = [sys.executable, "-m", "tests.interop.broker.fuzz", broker.servers]
    command += ["--seed", str(seed), "--count", str(count), "--connections", str(connections)]
    print(
        f"replay: ATONCE_SEED={seed} .venv/bin/python -m pytest {Path(__file__).relative_to(Path.cwd())}, or, at a broker of yours,"
    )
    print("  .venv/bin/python " + " ".join(command[1:]), flush=True)
    process = psutil.Process(broker.pid)
    before = most = process.memory_info().rss
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
        try:
            while attack.poll() is None:
                assert broker.running, "the broker is gone"
                most = max(most, process.memory_info().rss)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    attack.wait(0.2)
        finally:
            attack.kill()
        print(attack.stdout.read() if attack.stdout else "")
        assert attack.returncode == 0
    return (most - before) / 1e6


def check_log(broker: Broker) -> None:
    """Nothing that a client sends may surprise us: what does is logged as a fault of ours."""
    said = broker.log.read_text()
    surprised = said.find("in a way that it must not")
    assert surprised < 0, said[surprised : surprised + 4000]
    assert "offline" not in said, said[-4000:]


def test_fuzzed_requests_are_the_same_for_a_seed_and_reach_every_api() -> None:
    assert [fuzz.request(5, n) for n in range(50)] == [fuzz.request(5, n) for n in range(50)]
    assert fuzz.request(5, 1) != fuzz.request(6, 1)
    whole = {key for key, _ in fuzz.everything()}
    seen = {int.from_bytes(fuzz.request(1, n)[4:6], "big") for n in range(2000)}
    assert whole <= seen


def test_the_broker_survives_fuzzed_requests_and_serves_a_good_client() -> None:
    seed = int(os.environ.get("ATONCE_SEED") or random.randrange(2**32))
    with Broker(settings=SETTINGS) as broker, GoodClient(broker.servers) as good:
        grown_mb = attacked(broker, seed, 2500)
        check_log(broker)
    assert good.problem is None
    assert len(good.waits_s) > 10
    assert grown_mb < 300


@pytest.mark.soak
def test_fuzz_marks_with_two_thousand_connections_a_thousand_silent_readers_and_a_hundred_thousand_requests() -> None:
    """What a busy machine does to a wait is seen at a second broker, which nobody attacks."""
    seed = int(os.environ.get("ATONCE_SEED") or random.randrange(2**32))
    with Broker(settings=SETTINGS) as broker, Broker() as quiet:
        with (
            Memory(broker.pid) as memory,
            held_connections(broker.servers, 2000) as held,
            GoodClient(broker.servers) as good,
            GoodClient(quiet.servers) as control,
        ):
            fill(broker.servers, 60)
            with Silent(broker.servers, 1000) as silent:
                attacked(broker, seed, 100_000, connections=32)
            assert all(is_open(one) for one in held)
            check_log(broker)
            grown_mb, resident_mb = memory.grown_mb, memory.grown_resident_mb
    longest_s, usual_s = max(good.waits_s), max(control.waits_s)
    print(f"{grown_mb:.0f} MB over the fresh broker ({resident_mb:.0f} MB with the pages of libraries);", end=" ")
    print(f"a good client waited {longest_s:.2f} s at most", end=" ")
    print(f"in {len(good.waits_s)} answers, one of a broker that nobody attacked {usual_s:.2f} s;", end=" ")
    print(f"{silent.reopened} silent readers were let go and came again")
    assert good.problem is None
    assert grown_mb < 300
    assert longest_s < 1.0 + usual_s
