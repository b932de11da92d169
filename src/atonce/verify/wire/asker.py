"""The auditor's own small client: connections straight to the brokers, never through the proxy."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kio.index import load_request_schema

from atonce.errors import AtOnceError, UnreachableError
from atonce.verify.wire.decode import API_KEYS, Request
from atonce.verify.wire.decode import encode as encode_body

T = TypeVar("T")

# Versions that Apache Kafka 4.x and the embedded broker both speak, and that still name topics.
VERSIONS = {
    "produce": 9,
    "fetch": 12,
    "list_offsets": 7,
    "metadata": 12,
    "create_topics": 7,
    "delete_topics": 6,
    "delete_records": 2,
    "find_coordinator": 4,
    "offset_fetch": 8,
    "offset_commit": 8,
    "describe_groups": 5,
    "leave_group": 5,
    "delete_groups": 2,
    "describe_transactions": 0,
    "init_producer_id": 4,
    "add_partitions_to_txn": 3,
    "end_txn": 3,
    "create_partitions": 3,
    "incremental_alter_configs": 1,
}


class ClusterError(AtOnceError):
    """The broker answered the auditor with an error."""


class Asker:
    """Asks one broker one thing at a time, in versions that every broker we meet speaks."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._bootstrap = [(h, int(p)) for h, _, p in (part.strip().rpartition(":") for part in servers.split(","))]
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._correlation = 0
        self._lock = threading.RLock()

    def close(self) -> None:
        for at in list(self._sockets):
            self._drop(at)

    def ask(self, api: str, at: tuple[str, int] | None = None, timeout_s: float = 10.0, **fields: Any) -> Any:
        """One request, one answer. OSError when the connection does not hold."""
        version = VERSIONS[api]
        schema: Any = load_request_schema(API_KEYS[api], version)
        body = encode_body(schema(**fields))
        with self._lock:
            if at is None:
                at = self._any(timeout_s)
            self._correlation += 1
            head = struct.pack(">hhih", API_KEYS[api], version, self._correlation, 6) + b"atonce"
            if schema.__flexible__:
                head += b"\0"
            request = Request(
                frame=b"",
                api_key=API_KEYS[api],
                version=version,
                correlation_id=self._correlation,
                client_id=None,
                body_at=0,
            )
            try:
                connection = self._connect(at, timeout_s)
                connection.settimeout(timeout_s)
                connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
                answer = _read(connection, struct.unpack(">i", _read(connection, 4))[0])
            except OSError:
                self._drop(at)
                raise
        read = request.response_body(answer)
        if read is None:
            raise ClusterError(
                f"the broker at {at[0]}:{at[1]} answered {api} v{version} with bytes that cannot be read"
            )
        return read[0]

    def _any(self, timeout_s: float) -> tuple[str, int]:
        candidates = [*self._sockets, *self._bootstrap]
        for at in candidates:
            with contextlib.suppress(OSError):
                self._connect(at, timeout_s)
                return at
        raise UnreachableError(f"no broker answers at {self.servers}")

    def _connect(self, at: tuple[str, int], timeout_s: float) -> socket.socket:
        if at not in self._sockets:
            connection = socket.create_connection(at, timeout=timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[at] = connection
        return self._sockets[at]

    def _drop(self, at: tuple[str, int]) -> None:
        connection = self._sockets.pop(at, None)
        if connection is not None:
            connection.close()

    def patiently(self, work: Callable[[], T], timeout_s: float = 30.0) -> T:
        """Until it works: brokers restart, elect and load while we audit."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return work()
            except (OSError, UnreachableError, ClusterError) as error:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"the broker at {self.servers} did not do it in {timeout_s:g} s: {error}"
                    ) from error
                self._leaders.clear()
                time.sleep(0.05)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = connection.recv_into(view[at:])
        if got == 0:
            raise ConnectionResetError("the broker closed the connection in the middle of an answer")
        at += got
    return bytes(data)
