"""Where the broker listens and what clients are told to connect to: `listeners`, `advertised.listeners` and their map.

listeners=PLAINTEXT://127.0.0.1:9092,LAN://0.0.0.0:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LAN:SSL
advertised.listeners=LAN://broker.example.org:9093

As in Kafka, a client is told the address of the listener that it came in by. A listener without an advertised address
tells the one that it listens on; one that listens everywhere (`0.0.0.0`, `::`, no host) tells each client the address
that this client has reached, which Kafka refuses to start with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from atonce.broker.address import show_address
from atonce.broker.config import BadSetting

_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
_ENTRY = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([^\]]*)\]|([^:\[\]]*)):(\d{1,5})")


class Protocol(Enum):
    """Kafka's security protocols."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def asks_for_a_user(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str
    protocol: Protocol
    host: str  # "" listens everywhere
    port: int  # 0 until it is bound: then the one that was free
    advertised_host: str | None = None
    advertised_port: int | None = None

    @property
    def listens_everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    def bound(self, port: int) -> Listener:
        return replace(self, port=port)

    def told(self, reached: str) -> tuple[str, int]:
        """Host and port for a client that reached us at the address `reached`."""
        host = self.advertised_host or (reached.removeprefix("::ffff:") if self.listens_everywhere else self.host)
        return host, self.port if self.advertised_port is None else self.advertised_port

    def __str__(self) -> str:
        return f"{self.name}://{show_address(self.host, self.port)}"


def parse_listeners(values: Mapping[str, str | None]) -> list[Listener]:
    """The listeners in the order given, from the three settings; BadSetting says what is wrong with them."""
    protocols = _protocols(values.get("listener.security.protocol.map"))
    found = _entries("listeners", values.get("listeners"))
    if not found:
        raise BadSetting("listeners=: expected at least one NAME://HOST:PORT, as in PLAINTEXT://127.0.0.1:9092")
    advertised = _entries("advertised.listeners", values.get("advertised.listeners"))
    for name, (host, port) in advertised.items():
        if name not in found:
            raise BadSetting(f"advertised.listeners names {name}; listeners has only {', '.join(found)}")
        if host in _EVERYWHERE:
            raise BadSetting(
                f"advertised.listeners={name}://{show_address(host, port)}: nobody can connect to this address; "
                "name one that clients reach, or leave the listener out: each client is then told what it has reached"
            )
    taken: set[tuple[str, int]] = set()
    listeners = []
    for name, (host, port) in found.items():
        if name not in protocols:
            raise BadSetting(
                f"listeners: no security protocol for {name}; add {name}:PLAINTEXT (or another of "
                f"{', '.join(p.value for p in Protocol)}) to listener.security.protocol.map"
            )
        if port and (host, port) in taken:
            raise BadSetting(f"listeners: {show_address(host, port)} is given twice; each needs a port of its own")
        taken.add((host, port))
        told = advertised.get(name, (None, None))
        listeners.append(
            Listener(
                name=name,
                protocol=protocols[name],
                host=host,
                port=port,
                advertised_host=told[0],
                advertised_port=told[1],
            )
        )
    return listeners


def _entries(setting: str, text: str | None) -> dict[str, tuple[str, int]]:
    entries: dict[str, tuple[str, int]] = {}
    for word in _words(text):
        match = _ENTRY.fullmatch(word)
        if match is None or int(match[4]) > 65535:
            raise BadSetting(f"{setting}: {word}: expected NAME://HOST:PORT, as in PLAINTEXT://127.0.0.1:9092")
        name = match[1].upper()
        if name in entries:
            raise BadSetting(f"{setting}: {name} is given twice; each listener has a name of its own")
        entries[name] = (match[2] if match[2] is not None else match[3], int(match[4]))
    return entries


def _protocols(text: str | None) -> dict[str, Protocol]:
    if text is None:
        return {protocol.value: protocol for protocol in Protocol}
    known: dict[str, Protocol] = {}
    for word in _words(text):
        name, colon, protocol = word.partition(":")
        try:
            known[name.strip().upper()] = Protocol(protocol.strip().upper())
        except ValueError:
            colon = ""
        if not colon or not name.strip():
            raise BadSetting(
                f"listener.security.protocol.map: {word}: expected NAME:PROTOCOL with one of "
                f"{', '.join(p.value for p in Protocol)}"
            )
    return known


def _words(text: str | None) -> Sequence[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]
