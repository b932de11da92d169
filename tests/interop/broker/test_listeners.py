"""What clients are told to connect to, listener by listener."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from atonce.broker.embedded import Broker
from atonce.local.child import Child
from atonce.local.ports import free_ports
from tests.interop.broker.wire import Wire

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60


def told(servers: str) -> set[tuple[str, int]]:
    """Every API that names an address must name the same."""
    with Wire(servers) as wire:
        nodes = [
            wire.ask(METADATA, 9, topics=[], allow_auto_topic_creation=False).brokers[0],
            wire.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators[0],
            wire.ask(DESCRIBE_CLUSTER, 0).brokers[0],
        ]
    return {(str(node.host), int(node.port)) for node in nodes}


def test_each_client_is_told_the_address_of_the_listener_that_it_came_in_by() -> None:
    inside, outside = free_ports(2, "127.0.0.1")
    settings = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "OUTSIDE://broker.example.org:19093",
    }
    with Broker(listen=None, settings=settings) as broker:
        assert broker.servers == f"127.0.0.1:{inside}"
        assert told(f"127.0.0.1:{inside}") == {("127.0.0.1", inside)}
        assert told(f"127.0.0.1:{outside}") == {("broker.example.org", 19093)}
        broker.restart()
        assert told(f"127.0.0.1:{outside}") == {("broker.example.org", 19093)}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer at 127.0.0.1 only")
def test_a_broker_that_listens_everywhere_tells_each_client_the_address_that_it_has_reached(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "atonce.cli.main", "broker", "--data", str(tmp_path / "data"), "--insecure"]
    with Child([*command, "--listen", "0.0.0.0:0"]) as child:
        port = int(child.wait_for_line("ready on ", 30).rpartition(":")[2])
        for address in ("127.0.0.1", "127.0.0.2"):
            assert told(f"{address}:{port}") == {(address, port)}
