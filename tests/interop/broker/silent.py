"""Clients that ask for much and read nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil

from atonce.records.record import build_batch
from tests.interop.broker.wire import Wire

TOPIC, PARTITIONS = "silent", 4
RECORD_BYTES = 900_000


def fill(servers: str, megabytes: int) -> None:
    """So that there is something to ask for."""
    batch = build_batch([(None, b"x" * RECORD_BYTES)], timestamp_ms=int(time.time() * 1000))
    with Wire(servers) as wire:
        wire.ask(3, 9, topics=[{"name": TOPIC}], allow_auto_topic_creation=True)
        for number in range(megabytes):
            data = [{"name": TOPIC, "partition_data": [{"index": number % PARTITIONS, "records": batch}]}]
            answer = wire.ask(0, 9, acks=1, timeout=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(most: int, partitions: int = PARTITIONS) -> dict[str, Any]:
    """All that there is, from the beginning."""
    wanted = [{"partition": i, "fetch_offset": 0, "partition_max_bytes": most} for i in range(partitions)]
    topics = [{"topic": TOPIC, "partitions": wanted}]
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": most, "topics": topics}


def records(answer: Any) -> int:
    return sum(len(one.records or b"") for one in answer.responses[0].partitions)


class Silent:
    """So many connections, each with four fetches of 50 MB. Those that the broker closes are opened again."""

    def __init__(self, servers: str, count: int) -> None:
        host, _, port = servers.rpartition(":")
        self._at, self._count = (host, int(port)), count
        with Wire(servers) as wire:
            self._asked = 4 * wire.frame(1, 4, 1, **fetch(50_000_000))
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._again)
        self.reopened = 0

    def __enter__(self) -> Silent:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, self._count + 4000)), hard))
        for _ in range(self._count):
            self._ask()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for one in self._open:
            one.close()

    def _ask(self) -> None:
        with contextlib.suppress(OSError):
            one = socket.socket()
            # What the kernel keeps for it is not what is looked at here.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(30)
            one.connect(self._at)
            one.sendall(self._asked)
            self._open.append(one)

    def _again(self) -> None:
        while not self._stop.wait(0.5):
            closed = [one for one in self._open if is_closed(one)]
            for one in closed:
                self._open.remove(one)
                one.close()
                self._ask()
            self.reopened += len(closed)


def is_closed(one: socket.socket) -> bool:
    """Without reading: an aborted connection answers every question with an error."""
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or _state(one) != _ESTABLISHED


_ESTABLISHED = 1


def _state(one: socket.socket) -> int:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


class Memory:
    """The most memory that a process took over what it had at first, in megabytes: for itself, and with the pages of
    libraries, which are the file cache's and anybody's (LLVM's are 70 MB).
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before = self._most = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _now(self) -> tuple[float, float]:
        info = self._process.memory_info()
        return (info.rss - info.shared) / 1e6, info.rss / 1e6

    def _look(self) -> None:
        own, resident = self._now()
        self._most = max(own, self._most[0]), max(resident, self._most[1])

    @property
    def grown_mb(self) -> float:
        self._look()
        return self._most[0] - self._before[0]

    @property
    def grown_resident_mb(self) -> float:
        return self._most[1] - self._before[1]

    def _watch(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            while not self._stop.wait(0.05):
                self._look()

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def established(pid: int) -> int:
    return sum(one.status == psutil.CONN_ESTABLISHED for one in psutil.Process(pid).net_connections("tcp"))


def wait_until(what: str, reached: Any, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, what


@contextlib.contextmanager
def many(servers: str, count: int) -> Iterator[list[Wire]]:
    wires = [Wire(servers) for _ in range(count)]
    try:
        yield wires
    finally:
        for wire in wires:
            wire.close()
