"""Accepts connections and keeps the limits that all of them share."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from atonce.broker.config import MAX_INT
from atonce.broker.connection import Connection
from atonce.broker.incoming import PATIENCE_S, SCRATCH_BYTES, Incoming
from atonce.broker.listeners import Listener
from atonce.broker.metrics import Metrics
from atonce.broker.outgoing import Outgoing
from atonce.broker.peer import Peer
from atonce.broker.router import routes
from atonce.broker.sasl import Login
from atonce.broker.sending import ResponseRoom
from atonce.broker.settings import Settings
from atonce.broker.tls import TlsListener, listening_sockets

_SWEEP_S = 1.0
# Requests of more than a few kilobytes that run at the same time.
_LARGE_AT_A_TIME = 4
# How often those who wait for room are looked after.
_LOOK_S = 0.1
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
        # Those that may not read on, in the order in which they came: to begin a request, or even to go on with one.
        self._waiting: dict[Incoming, None] = {}
        self._waiting_half: dict[Incoming, None] = {}
        self._looking: asyncio.TimerHandle | None = None
        self.scratch = bytearray(SCRATCH_BYTES)  # what is read from a connection and is whole goes through it
        self.room: ResponseRoom = broker.response_room
        self.room.relieve = self._relieve
        self.slow: set[Outgoing] = set()  # those that do not read their answers as fast as we write them
        self.large_requests = asyncio.Semaphore(_LARGE_AT_A_TIME)
        self.one_heavy = asyncio.Lock()
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
        if self._waiting_half and not self.is_overfull:
            waiting, self._waiting_half = self._waiting_half, {}
            for incoming in waiting:
                incoming.balance()
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for incoming in waiting:
                incoming.balance()

    async def in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        """What takes long, while others have their turn."""
        return await asyncio.get_running_loop().run_in_executor(self.broker.large, work, *args)

    def _relieve(self, wanted: int) -> None:
        """Others wait for this many bytes: those who have not taken theirs for the longest time are let go."""
        now = time.monotonic()
        for outgoing in sorted(self.slow, key=lambda one: one.slow_since):
            if wanted <= 0 or now - outgoing.slow_since < PATIENCE_S:
                break
            wanted -= outgoing.unsent_bytes
            outgoing.give_up()

    def wait_for_room(self, incoming: Incoming) -> None:
        """To read on. It waits for no client that takes his time to send what he began."""
        waiting = self._waiting_half if incoming.half_bytes else self._waiting
        waiting[incoming] = None
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        if not (self._waiting or self._waiting_half) or not self.is_full:
            return
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        now = time.monotonic()
        most = self.limits.queued_bytes
        half = [(one.incoming, one) for one in self._connections.values() if one.incoming.half_bytes]
        slow = [
            (rate, sent.half_bytes, one) for sent, one in half if (rate := sent.arrives_too_slowly(now)) is not None
        ]
        stuck = [(-size, size, one) for one in self._connections.values() if (size := one.stuck_bytes(now))]
        left = self._turn_out(stuck, self._turn_out(slow, self._held_bytes, most), most)
        if left >= 2 * most and not slow:
            # Nobody can finish any more: those who are furthest from it make way.
            self._turn_out([(-sent.missing_bytes, sent.half_bytes, one) for sent, one in half], left, 2 * most)

    @staticmethod
    def _turn_out(candidates: Iterable[tuple[float, int, Connection]], held: int, most: int) -> int:
        """As many of these (the lowest first) as it takes until less than `most` is held; how much that will be."""
        for _, size, connection in sorted(candidates, key=lambda one: one[0]):
            if held < most:
                break
            if not connection.closing:
                connection.turn_out("requests that cannot go on, while others waited for their room")
                held -= size
        return held

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            for connection in list(self._connections.values()):
                connection.sweep(now)
