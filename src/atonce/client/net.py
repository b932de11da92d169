"""Connections, TLS and SASL by kafka-python: the one file that knows `kafka.net`.

Two ways to a node:
- `call`: one request, one answer, over a connection that all callers share. For everything that is not bulk data.
- `open_socket`: a connection of one's own, authenticated and then handed over as a plain blocking socket, so that
  the hot path neither copies through an event loop nor waits for one (`wire.py`).
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector

from atonce.client.config import connection_settings
from atonce.client.errors import AccessDenied, BrokerRefused, ConnectionLost
from atonce.client.oauth import Tokens
from atonce.client.profiles import profile_of
from atonce.errors import InvariantError, UnreachableError, UsageError

CLIENT_ID = "atonce"
MAX_RESPONSE_BYTES = 1 << 30

# The library speaks of every lost connection as an error; to us that is ordinary and handled. Its debug output holds
# whole requests, passwords included, so it stays off.
logging.getLogger("kafka").addHandler(logging.NullHandler())
for _chatty in ("kafka.protocol.parser", "kafka.net.connection", "kafka.net.transport"):
    logging.getLogger(_chatty).setLevel(logging.INFO)

DEFAULTS: dict[str, Any] = {
    "client_id": CLIENT_ID,
    "client_software_name": "atonce",
    "receive_message_max_bytes": MAX_RESPONSE_BYTES,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 500,
    "max_in_flight_requests_per_connection": 1_000,
}
DENIED = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.AuthorizationError,
    kafka_errors.UnsupportedSaslMechanismError,
)


class _TokenProvider(AbstractTokenProvider):
    """The library asks in the loop: by then a caller has seen to it that a good token is there."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def token(self) -> str:
        return self._tokens.token()

    def extensions(self) -> dict[str, str]:
        return dict(self._tokens.login.extensions)


class _Manager(KafkaConnectionManager):
    """Remembers why a connection failed, so that an error can say it."""

    def __init__(self, net: Any, **settings: Any) -> None:
        self.reasons: dict[Any, BaseException] = {}
        super().__init__(net, **settings)

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        connection = super().get_connection(node_id, **options)
        connection.init_future.add_errback(lambda error: self._remember(node_id, error))
        return connection

    def throttled_s(self, node_id: Any = None) -> float:
        """How long the broker reads nothing from us, as its last answer said (a quota); without a node: the shortest.

        The library refuses requests in that time; here they wait.
        """
        waits = [
            float(each._throttle_time) - time.monotonic() for each in self._conns.values() if "throttle" in each.paused
        ]
        if node_id is None:
            return max(0.0, min(waits, default=0.0))
        connection = self._conns.get(node_id)
        if connection is None or "throttle" not in connection.paused:
            return 0.0
        return max(0.001, float(connection._throttle_time) - time.monotonic())

    def _remember(self, node_id: Any, error: BaseException) -> None:
        # A broker that refused the credentials once hangs up on later tries: the refusal is the reason.
        if not isinstance(self.reasons.get(node_id), DENIED):
            self.reasons[node_id] = error


class Connections:
    """All connections of one client to one cluster. Thread-safe: the loop has a thread of its own."""

    def __init__(self, servers: str, properties: Mapping[str, str], connect_timeout_ms: int) -> None:
        self.servers = servers
        self._closed = False
        self.profile = profile_of(servers, properties)
        idle = {} if self.profile.idle_ms is None else {"connections_max_idle_ms": self.profile.idle_ms}
        self._settings = {**DEFAULTS, **idle, **connection_settings(properties)}
        self.client_id: str = self._settings["client_id"]
        self._tokens: Tokens | None = self._settings.get("sasl_oauth_token_provider")
        if self._tokens is not None:
            self._settings["sasl_oauth_token_provider"] = _TokenProvider(self._tokens)
            self._tokens.token()
        self._net = NetworkSelector(client_id=self.client_id, slow_task_threshold_secs=0)
        self._manager = _Manager(self._net, bootstrap_servers=_server_list(servers), **self._settings)
        self._net.start()
        try:
            self._manager.bootstrap(timeout_ms=connect_timeout_ms)
        except kafka_errors.KafkaError as error:
            reasons = list(self._manager.reasons.values())
            self.close()
            if self._denied(reasons):
                raise AccessDenied(
                    f"{servers}: the broker refused these credentials or closed the connection "
                    f"({_reasons(reasons, error)}). Next: check sasl.mechanism, user and password."
                ) from None
            raise UnreachableError(_unreachable(servers, connect_timeout_ms, reasons, error)) from None

    def _denied(self, reasons: list[BaseException]) -> bool:
        """A broker answers a wrong password and closes at once, and the library may only see the close."""
        sasl = str(self._settings.get("security_protocol", "")).startswith("SASL")
        return any(isinstance(reason, DENIED) or (sasl and "disconnected" in str(reason)) for reason in reasons)

    @property
    def broker_version(self) -> str:
        data = self._manager.broker_version_data
        return str(data.broker_version_str) if data is not None else "unknown"

    def max_version(self, request_class: Any) -> int:
        """The newest version of a request that both sides know; -1 when the broker does not know it at all."""
        try:
            return int(self._manager.broker_version_data.api_version(request_class))
        except kafka_errors.IncompatibleBrokerVersion:
            return -1

    def nodes(self) -> dict[int, tuple[str, int]]:
        return {broker.node_id: (broker.host, broker.port) for broker in self._manager.cluster.brokers()}

    def call(self, request: Any, node: int | None, timeout_ms: int) -> Any:
        """One request, one answer. `ConnectionLost`: it may or may not have been carried out."""
        self._check_open()
        self._have_token()
        try:
            return self._net.run(self._call, request, node, timeout_ms)
        except DENIED as error:
            raise AccessDenied(f"{self.servers}: {error}") from None
        except kafka_errors.IncompatibleBrokerVersion as error:
            raise BrokerRefused(f"{self.servers} (Kafka {self.broker_version}): {error}") from None
        except (kafka_errors.KafkaError, RuntimeError, OSError) as error:
            # RuntimeError: the library's word for a connection that closes while a request is handed to it.
            kind = type(request).__name__.removesuffix("Request")
            target = self.servers if node is None else f"node {node} of {self.servers}"
            raise ConnectionLost(f"{kind} to {target}: {_words(error)}") from None

    async def _call(self, request: Any, node: int | None, timeout_ms: int) -> Any:
        deadline = time.monotonic() + timeout_ms / 1000
        manager = self._manager
        if node is not None and manager.cluster.broker_metadata(node) is None:
            await manager.cluster.refresh_metadata()
        while True:
            target = manager.least_loaded_node() if node is None else node
            throttled_s = manager.throttled_s(target)
            if throttled_s > 0:
                # The broker told us to wait: that is none of the time in which it has to answer.
                deadline += throttled_s
                await self._net.sleep(throttled_s)
                continue
            delay = 0.02 if target is None else manager.connection_delay(target)
            if target is not None and delay <= 0:
                left_ms = max(1.0, (deadline - time.monotonic()) * 1000)
                return await manager.send(request, target, request_timeout_ms=left_ms)
            # Nothing has been sent yet: waiting out the reconnect back-off repeats nothing.
            if time.monotonic() + delay >= deadline:
                raise kafka_errors.NodeNotReadyError(f"not connected within {timeout_ms} ms")
            await self._net.sleep(delay)

    def refresh(self) -> None:
        """Learn the nodes anew (best effort: the next call finds out if it failed)."""
        try:
            self._net.run(self._manager.cluster.refresh_metadata)
        except kafka_errors.KafkaError:
            return

    def open_socket(self, node: int, timeout_ms: int) -> tuple[socket.socket, Any]:
        """A connected, authenticated, blocking socket of one's own, and the broker's API versions."""
        self._check_open()
        self._have_token()
        try:
            return self._net.run(self._open, node, timeout_ms)  # type: ignore[no-any-return]
        except DENIED as error:
            raise AccessDenied(f"{self.servers}: {error}") from None
        except (kafka_errors.KafkaError, RuntimeError, OSError) as error:
            raise ConnectionLost(f"connecting to node {node} of {self.servers}: {_words(error)}") from None

    async def _open(self, node: int, timeout_ms: int) -> tuple[socket.socket, Any]:
        manager, deadline = self._manager, time.monotonic() + timeout_ms / 1000
        address = manager.cluster.broker_metadata(node)
        if address is None:
            await manager.cluster.refresh_metadata()
            address = manager.cluster.broker_metadata(node)
        if address is None:
            raise kafka_errors.UnknownBrokerIdError(node)
        connection = KafkaConnection(self._net, node_id=node, **manager.config)
        transport = await manager._build_transport(address, timeout_at=deadline)
        connection.connection_made(transport)
        await connection.initialize(timeout_at=deadline)
        await connection
        # Take the socket over: nothing is in flight, so nothing unread is left behind in the loop.
        transport.pause_reading()
        self._net.cancel(transport._read_task)
        taken, transport._sock, transport._closed = transport._sock, None, True
        connection._reauth.cancel()  # such a socket ends with its session, and another is opened
        taken.setblocking(True)
        return taken, connection.broker_version_data

    def _have_token(self) -> None:
        """Fetched here, in the caller's thread: in the loop it would keep every other request waiting."""
        if self._tokens is not None:
            try:
                self._tokens.token()
            except UnreachableError as error:
                raise ConnectionLost(str(error)) from None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._net.run(self._close)
        finally:
            self._net.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvariantError(f"the client of {self.servers} was closed and is still being used")

    async def _close(self) -> None:
        self._manager.close()


def _server_list(servers: str) -> list[str]:
    found = [server.strip() for server in servers.split(",") if server.strip()]
    for server in found:
        host, colon, port = server.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"server {server!r} in {servers!r} is not HOST:PORT")
    if not found:
        raise UsageError("no Kafka server is named; expected HOST:PORT[,HOST:PORT…]")
    return found


def _unreachable(servers: str, timeout_ms: int, reasons: list[BaseException], error: BaseException) -> str:
    return (
        f"no Kafka broker answers at {servers} within {timeout_ms / 1000:g} s ({_reasons(reasons, error)}). "
        "Next: check the address and security.protocol, and that the broker is running."
    )


def _reasons(reasons: list[BaseException], error: BaseException) -> str:
    return "; ".join(sorted({_words(reason) for reason in reasons})) or _words(error)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
