"""Clients that take their answers a byte at a time, or never take them over TLS: others are served meanwhile."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atonce.broker.embedded import Broker
from atonce.local.certificates import Authority
from tests.interop.broker.silent import (
    RECORD_BYTES,
    Memory,
    established,
    fetch,
    fill,
    is_closed,
    many,
    records,
    wait_until,
)
from tests.interop.broker.wire import Wire
from tests.interop.secure.parts import SecureBroker

FETCH, API_VERSIONS = 1, 18
ROOM = {"queued.max.response.bytes": 4_194_304}


@contextlib.contextmanager
def trickling(wires: list[Wire]) -> Iterator[None]:
    """Each takes one byte of its answer a second."""
    stop = threading.Event()

    def take() -> None:
        while not stop.wait(1):
            for wire in wires:
                with contextlib.suppress(OSError):
                    wire.socket.recv(1, socket.MSG_DONTWAIT)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_clients_that_take_a_byte_a_second_hold_up_nobody() -> None:
    with Broker(settings=ROOM) as broker, Wire(broker.servers) as known:
        fill(broker.servers, 12)
        with many(broker.servers, 80) as slow:
            for wire in slow:
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                for _ in range(4):
                    wire.send(FETCH, 4, **fetch(10_000_000))
            with trickling(slow), Memory(broker.pid) as memory:
                for _ in range(10):
                    assert records(known.ask(FETCH, 4, **fetch(10_000_000))) > RECORD_BYTES
                wait_until("nobody is let go", lambda: sum(is_closed(wire.socket) for wire in slow) >= 10)
                assert memory.grown_mb < 100


def test_client_that_takes_a_byte_a_second_is_disconnected_when_that_is_as_good_as_nothing() -> None:
    """A byte a second does not even open its window: it counts as a client that reads nothing."""
    with Broker(settings={"response.send.timeout.ms": 2000}) as broker, Wire(broker.servers) as known:
        fill(broker.servers, 12)
        with Wire(broker.servers) as slow, trickling([slow]):
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.send(FETCH, 4, **fetch(12_000_000))
            wait_until("it is still connected", lambda: is_closed(slow.socket))
        assert known.ask(API_VERSIONS, 0).error_code == 0


class TlsWire(Wire):
    def __init__(self, servers: str, trusted: ssl.SSLContext, *, reads: bool = False) -> None:
        super().__init__(servers)
        if not reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket: Any = trusted.wrap_socket(self.socket, server_hostname="localhost")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority("test authority")
    server = authority.issue("server", ["localhost", "127.0.0.1"])
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "server.pem").write_bytes(server.key + server.certificate)
    return folder


def test_silent_clients_over_tls_cost_little_and_hold_up_nobody(certificates: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    settings = {**ROOM, "ssl.keystore.location": str(certificates / "server.pem")}
    with SecureBroker(("SSL", "PLAINTEXT"), settings) as broker, contextlib.ExitStack() as opened:
        plain, encrypted = broker.servers_of("PLAINTEXT"), broker.servers_of("SSL")
        known = opened.enter_context(Wire(plain))
        reader = opened.enter_context(TlsWire(encrypted, trusted, reads=True))
        fill(plain, 12)
        assert records(reader.ask(FETCH, 4, **fetch(1_000_000))) >= RECORD_BYTES
        memory = opened.enter_context(Memory(broker.pid))
        silent = [opened.enter_context(TlsWire(encrypted, trusted)) for _ in range(80)]
        for wire in silent:
            for _ in range(4):
                wire.send(FETCH, 4, **fetch(10_000_000))
        for _ in range(5):
            assert records(known.ask(FETCH, 4, **fetch(10_000_000))) > RECORD_BYTES
            assert records(reader.ask(FETCH, 4, **fetch(10_000_000))) > RECORD_BYTES
        wait_until("nobody is let go", lambda: established(broker.pid) < len(silent))
        assert memory.grown_mb < 100


def test_client_that_reads_nothing_over_tls_is_disconnected(certificates: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    settings = {"response.send.timeout.ms": 1000, "ssl.keystore.location": str(certificates / "server.pem")}
    with SecureBroker(("SSL", "PLAINTEXT"), settings) as broker:
        fill(broker.servers_of("PLAINTEXT"), 12)
        with TlsWire(broker.servers_of("SSL"), trusted) as silent:
            silent.send(FETCH, 4, **fetch(12_000_000))
            wait_until("it is still connected", lambda: is_closed(silent.socket))
