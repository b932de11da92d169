"""The settings that say where to listen, and what a client is told."""

from __future__ import annotations

import pytest

from atonce.broker.config import BadSetting
from atonce.broker.listeners import Listener, Protocol, parse_listeners


def parse(listeners: str, advertised: str | None = None, protocols: str | None = None) -> list[Listener]:
    return parse_listeners(
        {
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": protocols,
        }
    )


def test_a_listener_tells_the_address_that_it_listens_on() -> None:
    (only,) = parse("PLAINTEXT://127.0.0.1:9092")
    assert (only.name, only.protocol, only.host, only.port) == ("PLAINTEXT", Protocol.PLAINTEXT, "127.0.0.1", 9092)
    assert only.told("127.0.0.1") == ("127.0.0.1", 9092)


def test_a_picked_port_is_the_one_that_clients_are_told() -> None:
    (only,) = parse("PLAINTEXT://localhost:0")
    assert only.bound(40001).told("127.0.0.1") == ("localhost", 40001)


def test_each_listener_has_its_advertised_address_and_its_protocol() -> None:
    inside, outside = parse(
        "INSIDE://10.0.0.1:9092, OUTSIDE://0.0.0.0:9093",
        advertised="OUTSIDE://broker.example.org:19093",
        protocols="INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
    )
    assert inside.told("10.0.0.1") == ("10.0.0.1", 9092)
    assert outside.told("172.17.0.2") == ("broker.example.org", 19093)
    assert outside.protocol.is_encrypted and outside.protocol.asks_for_a_user


@pytest.mark.parametrize("host", ["0.0.0.0", "", "[::]"])
def test_one_that_listens_everywhere_tells_each_client_what_it_has_reached(host: str) -> None:
    (only,) = parse(f"PLAINTEXT://{host}:9092")
    assert only.told("192.168.1.7") == ("192.168.1.7", 9092)
    assert only.told("::ffff:192.168.1.7") == ("192.168.1.7", 9092)


@pytest.mark.parametrize(
    ("listeners", "advertised", "protocols", "said"),
    [
        ("", None, None, "expected at least one NAME://HOST:PORT"),
        ("127.0.0.1:9092", None, None, "expected NAME://HOST:PORT"),
        ("PLAINTEXT://h:70000", None, None, "expected NAME://HOST:PORT"),
        ("A://h:1", None, None, "no security protocol for A"),
        ("A://h:1", None, "A:PLAIN", "expected NAME:PROTOCOL"),
        ("SSL://h:1,SSL://h:2", None, None, "SSL is given twice"),
        ("SSL://h:1,PLAINTEXT://h:1", None, None, "h:1 is given twice"),
        ("SSL://h:1", "PLAINTEXT://h:1", None, "advertised.listeners names PLAINTEXT; listeners has only SSL"),
        ("SSL://h:1", "SSL://0.0.0.0:1", None, "nobody can connect to this address"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(
    listeners: str, advertised: str | None, protocols: str | None, said: str
) -> None:
    with pytest.raises(BadSetting, match=said.replace(".", r"\.")):
        parse(listeners, advertised, protocols)
