"""Accepts connections and keeps the limits that all of them share."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from atonce.broker.config import MAX_INT
from atonce.broker.connection import Connection
from atonce.broker.listeners import Listener
from atonce.broker.metrics import Metrics
from atonce.broker.peer import Peer
from atonce.broker.router import routes
from atonce.broker.sasl import Login
from atonce.broker.settings import Settings
from atonce.broker.tls import TlsListener, listening_sockets

_SWEEP_S = 1.0
# A client that has read something within this time is not let go, however full we are.
_STALLED_S = 1.0
# Unsent bytes of thousands of connections are added up so often.
_COUNT_AGAIN_S = 0.05
# Who goes when an address has too many connections is looked up for many newcomers at once.
_LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    request_bytes: int
    control_request_bytes: int
    first_request_bytes: int
    queued_bytes: int
    queued_requests: int
    connections: int
    connections_per_address: int
    idle_s: float
    receive_s: float
    send_s: float
    response_bytes: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    login_s: float
    strangers: int

    @classmethod
    def of(cls, settings: Settings, most_connections: int = MAX_INT) -> Limits:
        request_bytes = settings.number("socket.request.max.bytes")
        return cls(
            request_bytes=request_bytes,
            control_request_bytes=min(request_bytes, settings.number("control.request.max.bytes")),
            first_request_bytes=min(request_bytes, settings.number("first.request.max.bytes")),
            queued_bytes=settings.number("queued.max.request.bytes"),
            queued_requests=settings.number("queued.max.requests"),
            connections=min(settings.number("max.connections"), most_connections),
            connections_per_address=settings.number("max.connections.per.ip"),
            idle_s=settings.number("connections.max.idle.ms") / 1000,
            receive_s=settings.number("request.receive.timeout.ms") / 1000,
            send_s=settings.number("response.send.timeout.ms") / 1000,
            response_bytes=settings.number("queued.max.response.bytes"),
            send_buffer_bytes=settings.number("socket.send.buffer.bytes"),
            receive_buffer_bytes=settings.number("socket.receive.buffer.bytes"),
            login_s=settings.number("authentication.timeout.ms") / 1000,
            strangers=settings.number("max.unauthenticated.connections"),
        )

    def size_buffers(self, connection: socket.socket) -> None:
        if self.send_buffer_bytes > 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes > 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


class Server:
    """Listens for one broker, at one address or several."""

    def __init__(self, broker: Any, limits: Limits, metrics: Metrics) -> None:
        self.broker = broker
        self.limits = limits
        self.metrics = metrics
        self.routes = routes()
        self._connections: dict[int, Connection] = {}
        self._per_address: Counter[str] = Counter()
        self._crowds: dict[str, deque[int]] = {}  # by address, which connections go first when it has too many
        self._looked: dict[str, float] = {}
        self._strangers: dict[int, Connection] = {}  # the oldest first
        self._next_id = 0
        self._held_bytes = 0
        self._waiting: list[Connection] = []
        self._unsent = 0
        self._counted_at = self._relieved_at = -math.inf
        self.slow: set[Connection] = set()  # those that do not read their answers as fast as we write them
        broker.response_room = self.response_room
        self._listening: list[asyncio.Server | TlsListener] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def listen(self, listener: Listener, backlog: int, tls: ssl.SSLContext | None = None) -> Listener:
        """Start accepting there; returns the listener with the port that it became."""
        loop = asyncio.get_running_loop()
        bound = listener

        def connect() -> Connection:
            self._next_id += 1
            return Connection(self, self._next_id, bound)

        # Every address; but a port that is picked would be another one for each family.
        host = listener.host or (None if listener.port else "0.0.0.0")
        serving: asyncio.Server | TlsListener
        if tls is None:
            serving = await loop.create_server(connect, host, listener.port, backlog=backlog)
        else:
            sockets = listening_sockets(host, listener.port, backlog)
            serving = TlsListener(sockets, connect, tls, self.limits.login_s)
        bound = listener.bound(int(serving.sockets[0].getsockname()[1]))
        self._listening.append(serving)
        if self._sweeper is None:
            self._sweeper = loop.create_task(self._sweep())
        return bound

    async def stop(self, grace_s: float = 2.0) -> None:
        """Accept nothing more, let the requests at hand finish for a moment, then close every connection."""
        for serving in self._listening:
            serving.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        deadline = time.monotonic() + grace_s
        for connection in list(self._connections.values()):
            connection.stop()
        while self._connections and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections.values()):
            connection.close()

    # -- called by the connections ------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        limits = self.limits
        address = connection.address
        full = self._per_address[address] >= limits.connections_per_address and not self._make_room(address)
        if full or (len(self._connections) >= limits.connections and not self._make_room(None)):
            self.metrics.refused += 1
            return False
        self._connections[connection.connection_id] = connection
        self._per_address[connection.address] += 1
        self.metrics.connections = len(self._connections)
        if connection.peer.is_stranger:
            self._strangers[connection.connection_id] = connection
            if len(self._strangers) > limits.strangers:
                self._drop_a_stranger()
        return True

    def _make_room(self, address: str | None) -> bool:
        """Let go of the connection that will be missed least, of this address or of the one that has most of them.

        So whoever opens thousands and holds them locks nobody out, not even those who come from the same address.
        """
        if address is None:
            address = self._per_address.most_common(1)[0][0]
        now = time.monotonic()
        crowd = self._crowds.get(address)
        if not crowd and now - self._looked.get(address, -math.inf) >= _LOOK_AGAIN_S:
            self._looked[address] = now
            ours = (one for one in self._connections.values() if one.address == address)
            ranked = sorted((rank, one.connection_id) for one in ours if (rank := one.how_idle(now)) is not None)
            crowd = self._crowds[address] = deque(number for _, number in ranked)
        while crowd:
            unused = self._connections.get(crowd.popleft())
            if unused is not None and unused.how_idle(now) is not None:
                unused.turn_out("its address has too many connections, and this one was used least")
                self.forget(unused)
                return True
        return False

    def peer(self, listener: Listener) -> Peer:
        """Whom a new connection belongs to, as far as that is known."""
        acls = self.broker.acls
        if acls is not None:
            acls.refresh()
        peer = Peer(acls=acls, is_shaking_hands=listener.protocol.is_encrypted)
        if listener.protocol.asks_for_a_user:
            peer.login = Login(self.broker.sasl, peer)
        return peer

    def came_in(self, connection: Connection) -> None:
        self._strangers.pop(connection.connection_id, None)

    def _drop_a_stranger(self) -> None:
        """The oldest from the address that has most of them: a flood crowds out itself, and nobody else."""
        most, _ = Counter(one.address for one in self._strangers.values()).most_common(1)[0]
        oldest = next(one for one in self._strangers.values() if one.address == most)
        oldest.turn_out("too many connections without a login")

    def forget(self, connection: Connection) -> None:
        if self._connections.pop(connection.connection_id, None) is None:
            return
        self._strangers.pop(connection.connection_id, None)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            for known in (self._per_address, self._crowds, self._looked):
                known.pop(connection.address, None)
        self.metrics.connections = len(self._connections)
        self.broker.connection_closed(connection.connection_id)

    @property
    def is_full(self) -> bool:
        return self._held_bytes >= self.limits.queued_bytes

    @property
    def is_overfull(self) -> bool:
        """So full that even half received requests have to wait."""
        return self._held_bytes >= 2 * self.limits.queued_bytes

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def reserve(self, size: int) -> None:
        self._held_bytes += size

    def release(self, size: int) -> None:
        self._held_bytes -= size
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.room_made()

    def response_room(self) -> int:
        """How much a new answer may hold while slow readers keep us from sending the others."""
        now = time.monotonic()
        if now - self._counted_at >= _COUNT_AGAIN_S:
            self._counted_at, self._unsent = now, sum(connection.unsent_bytes for connection in self.slow)
        return self.limits.response_bytes - self._unsent

    def unsent_more(self, size: int) -> None:
        """An answer was written that its client has not read yet; counted by the next look, and until then here."""
        self._unsent += size

    def relieve(self) -> None:
        """Unsent answers hold too much: those who have read nothing for the longest time are let go."""
        now = time.monotonic()
        if now - self._relieved_at < _COUNT_AGAIN_S:
            return
        self._relieved_at = now
        over = -self.response_room()
        stalled = ((one.stalled_s(now), one.connection_id, one) for one in self.slow if one.unsent_bytes)
        for since_s, _, connection in sorted(stalled, reverse=True):
            if over <= 0 or since_s < _STALLED_S:
                break
            over -= connection.unsent_bytes
            self.slow.discard(connection)
            connection.give_up()

    def wait_for_room(self, connection: Connection) -> None:
        self._waiting.append(connection)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            for connection in list(self._connections.values()):
                connection.sweep(now)
            if self.response_room() < 0:
                self.relieve()
