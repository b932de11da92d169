"""A connection of one's own to one node, for bulk data: requests go out, answers come back in the same order."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from atonce.client.errors import BrokerRefused, ConnectionLost
from atonce.local.leash import readable

MAX_FRAME_BYTES = 1 << 30
SEND_TIMEOUT_S = 30.0


class Wire:
    """Blocking and pipelined. Not thread-safe. After any failure it is closed: what was in flight is unknown."""

    def __init__(self, sock: socket.socket, versions: Any, *, node: int, client_id: str) -> None:
        self.node = node
        self._sock = sock
        self._versions = versions
        self._client_id = client_id
        self._correlation = 0
        self._waiting: deque[tuple[int, Any]] = deque()
        self._buffer = bytearray(1 << 16)
        self._muted_until = 0.0

    @property
    def outstanding(self) -> int:
        """Requests whose answer has not been read yet."""
        return len(self._waiting)

    @property
    def reusable(self) -> bool:
        """Open, nothing in flight, and not closed by the other side in the meantime."""
        if self._sock.fileno() < 0 or self._waiting:
            return False
        return not readable([self._sock.fileno()], 0)

    @property
    def throttled_s(self) -> float:
        """How long the broker will not read from this connection, as it said with its last answer (a quota)."""
        return max(0.0, self._muted_until - time.monotonic())

    def max_version(self, request_class: Any) -> int:
        """The newest version of a request that both sides know."""
        return int(self._versions.api_version(request_class))

    def prepare(self, request: Any) -> Any:
        """Choose the version that both sides know (at most the request's own `max_version`)."""
        if request.API_VERSION is None:
            request.API_VERSION = self._versions.api_version(request)
        return request

    def send(self, request: Any, splice: tuple[int, Sequence[Any]] | None = None) -> None:
        """`splice`: (bytes of the encoded request to cut off its end, parts to send in their place).

        Waits while the broker throttles this client: it would read nothing before that.
        """
        self.prepare(request)
        time.sleep(self.throttled_s)
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self._client_id)
        frame = request.encode(framed=True, header=True)
        parts: list[Any] = [frame]
        if splice is not None:
            cut, tail = splice
            frame = frame[: len(frame) - cut]
            struct.pack_into(">i", frame, 0, len(frame) - 4 + sum(len(part) for part in tail))
            parts = [frame, *tail]
        try:
            self._sock.settimeout(SEND_TIMEOUT_S)
            self._send_all(parts)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"sending to node {self.node}: {error or type(error).__name__}") from None
        if request.expect_response():
            self._waiting.append((self._correlation, request))

    def _send_all(self, parts: list[Any]) -> None:
        if len(parts) == 1 or not hasattr(self._sock, "sendmsg") or hasattr(self._sock, "cipher"):
            for part in parts:  # TLS has no scatter/gather
                self._sock.sendall(part)
            return
        views = [memoryview(part) for part in parts]
        while views:
            sent = self._sock.sendmsg(views)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def receive(self, timeout_ms: int) -> Any:
        """The answer to the oldest request in flight."""
        # A request that was on its way when the broker began to throttle is read only afterwards.
        deadline = time.monotonic() + self.throttled_s + timeout_ms / 1000
        correlation, request = self._waiting[0]
        try:
            size = int.from_bytes(self._read(4, deadline), "big")
            if not 4 <= size <= MAX_FRAME_BYTES:
                raise OSError(f"a response of {size} bytes")
            frame = self._read(size, deadline)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"waiting for node {self.node}: {error or type(error).__name__}") from None
        self._waiting.popleft()
        if int.from_bytes(frame[:4], "big") != correlation:
            self.close()
            raise ConnectionLost(
                f"node {self.node} answered request {int.from_bytes(frame[:4], 'big')}, not {correlation}"
            )
        answer = self._decode(request, frame)
        if answer.throttle_time_ms > 0:
            self._muted_until = time.monotonic() + answer.throttle_time_ms / 1000
        return answer

    def _decode(self, request: Any, frame: memoryview) -> Any:
        response_class = request.header.get_response_class()
        # A flexible response header is the correlation id and an empty tag section.
        body = frame[5:] if response_class.flexible_version_q(request.API_VERSION) else frame[4:]
        try:
            return response_class.decode(body)
        except (ValueError, struct.error, IndexError, AssertionError) as error:
            self.close()
            raise BrokerRefused(f"node {self.node} sent a {response_class.name} that cannot be read: {error}") from None

    def _read(self, size: int, deadline: float) -> memoryview:
        """Bytes in a buffer that the next read overwrites."""
        if size > len(self._buffer):
            self._buffer = bytearray(1 << (size - 1).bit_length())
        view, got = memoryview(self._buffer)[:size], 0
        while got < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            self._sock.settimeout(left)
            count = self._sock.recv_into(view[got:])
            if not count:
                raise ConnectionResetError("the connection was closed by the broker")
            got += count
        return view

    def close(self) -> None:
        self._sock.close()
        self._waiting.clear()
