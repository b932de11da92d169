"""A broker that asks who comes in, and the ways that clients come in by."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from kafka.admin import KafkaAdminClient

from atonce.broker.embedded import Broker
from atonce.broker.users import Users
from atonce.local.ports import free_ports
from tests.interop.broker.wire import Wire

USER, PASSWORD = "alice", "tr0ub4dor-and-3"
SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS, METADATA = 17, 36, 18, 3


class SecureBroker(Broker):
    """An embedded broker with several listeners, by protocol; `alice` is a user."""

    def __init__(self, protocols: tuple[str, ...], settings: Mapping[str, object] | None = None) -> None:
        self.at = dict(zip(protocols, free_ports(len(protocols)), strict=True))
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.at.items())
        super().__init__(listen=None, settings={"listeners": listeners, **(settings or {})})
        Users(self.data).set_password(USER, PASSWORD)

    def servers_of(self, protocol: str) -> str:
        return f"127.0.0.1:{self.at[protocol]}"


def log_in(wire: Wire, mechanism: str = "PLAIN", token: bytes = f"\0{USER}\0{PASSWORD}".encode()) -> Any:
    shaken = wire.ask(SASL_HANDSHAKE, 1, mechanism=mechanism)
    assert not shaken.error_code
    return wire.ask(SASL_AUTHENTICATE, 2, auth_bytes=token)


def send_raw(wire: Wire, token: bytes) -> None:
    wire.socket.sendall(struct.pack(">i", len(token)) + token)


def kafka_python(servers: str, mechanism: str, password: str = PASSWORD, **more: Any) -> KafkaAdminClient:
    return KafkaAdminClient(
        bootstrap_servers=servers,
        security_protocol=more.pop("security_protocol", "SASL_PLAINTEXT"),
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=password,
        **more,
    )
