"""A page that makes its own name point to this machine reads nothing from our small web servers."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Iterator

import pytest

from atonce.broker.metrics import serve_metrics
from atonce.delivery.metrics import Numbers, serve
from atonce.local.host_header import is_meant_for_us

GOOD = ["localhost", "localhost:9405", "127.0.0.1:9405", "[::1]:9405", "127.8.8.8", socket.gethostname()]
BAD = [None, "", "evil.example.org", "evil.example.org:9405", "localhost.evil.example.org", "10.0.0.1:9405"]


@pytest.mark.parametrize("header", GOOD)
def test_this_machines_names_are_its_own(header: str) -> None:
    assert is_meant_for_us(header, "127.0.0.1")


@pytest.mark.parametrize("header", BAD)
def test_other_names_are_not(header: str | None) -> None:
    assert not is_meant_for_us(header, "127.0.0.1")
    assert is_meant_for_us(header, "0.0.0.0"), "a server for others has names that we cannot know"


@pytest.fixture
def pipelines_port() -> Iterator[int]:
    server = serve(Numbers("orders", "none"), "127.0.0.1:0")
    yield server.server_port
    server.shutdown()
    server.server_close()


def _status(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers={"Host": host})
    return connection.getresponse().status


def test_a_pipelines_metrics(pipelines_port: int) -> None:
    assert _status(pipelines_port, f"localhost:{pipelines_port}") == 200
    assert _status(pipelines_port, "evil.example.org") == 421


def test_the_brokers_metrics() -> None:
    async def ask() -> list[int]:
        server, _, port = await serve_metrics("127.0.0.1", 0, lambda: "x 1\n")
        async with server:
            loop = asyncio.get_running_loop()
            return [await loop.run_in_executor(None, _status, port, host) for host in ("localhost", "evil.example.org")]

    assert asyncio.run(ask()) == [200, 421]
