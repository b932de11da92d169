"""One client connection: its life, and its requests, which start one after another.

What it sends is cut into frames by `Incoming`; what it is answered goes out by `Answers` and `Outgoing`. An answer that
is still waited for (`Later`) does not hold up the next request, only its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from struct import Struct
from typing import TYPE_CHECKING, Any

from atonce.broker.access import GUARDS
from atonce.broker.answers import Answers
from atonce.broker.context import Context
from atonce.broker.handlers import api_versions
from atonce.broker.incoming import PATIENCE_S, SCRATCH_BYTES, Frame, Incoming
from atonce.broker.messages import (
    ErrorCode,
    MalformedRequest,
    Reply,
    RequestHeader,
    is_loaded,
    load,
    read_header,
    read_request,
)
from atonce.broker.outgoing import Outgoing
from atonce.broker.peer import Peer
from atonce.broker.tls import principal

if TYPE_CHECKING:
    from atonce.broker.listeners import Listener
    from atonce.broker.router import Route
    from atonce.broker.server import Server

_log = logging.getLogger(__name__)

_API = Struct(">hh")
_PRODUCE = 0
_FETCH = 1
# A connection on which something happened within this time is not let go for a newcomer.
_IN_USE_S = 1.0
# Fetch, JoinGroup, SyncGroup: answered when others have done something.
_WAITS_FOR_OTHERS = frozenset({_FETCH, 11, 14})


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Server, connection_id: int, listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self._told = ("", 0)  # where this client finds us
        self.connection_id = connection_id
        self.peer: Peer = server.peer(listener)
        self.address = ""
        self._transport: Any = None
        self.incoming = Incoming(server, self.peer, self._must_wait, self._refuse)
        self.out = Outgoing(server.room, server.slow, server.broker.readers, server.metrics, self._refuse)
        self._answers = Answers(server, self.out, self._failed)
        self.began = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._only_reads = False
        self._size_at_hand = 0  # of the request that runs
        self._patient_since: float | None = None  # since when it waits for other clients
        self._is_wrapped = False

    @property
    def closing(self) -> bool:
        return self.incoming.ended

    # -- the transport's side -----------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        if self.peer.is_shaking_hands:
            self._is_wrapped, self.peer.is_shaking_hands = True, False
            self.peer.principal = principal(transport)
            self._begin(transport)
        elif self.arrive(transport):
            self._begin(transport)

    def arrive(self, transport: Any) -> bool:
        """Somebody is there. False: there is no room, and he is gone again."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.address = self.peer.host = str(peer[0]) if peer else ""
        reached = transport.get_extra_info("sockname")
        self._told = self._listener.told(str(reached[0]) if reached else "")
        if not self._server.admit(self):
            self.incoming.end()
            transport.abort()
            return False
        return True

    def _begin(self, transport: Any) -> None:
        self._transport = transport
        if not self.peer.is_stranger:
            self._server.came_in(self)
        self.incoming.begin(transport)
        self.out.begin(transport, is_encrypted=self._is_wrapped)
        self._server.limits.size_buffers(transport.get_extra_info("socket"))
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, error: Exception | None) -> None:
        self.out.resume()
        self.incoming.drop_half()
        self._server.forget(self)
        self._hang_up()

    def eof_received(self) -> bool:
        self._hang_up()
        # What was received is still answered; then `_serve` closes. TLS cannot be half closed.
        return not self._is_wrapped

    def _hang_up(self) -> None:
        """Nothing more will come. A fetch that waits for data is given up; whatever changes something is finished."""
        self.incoming.end()
        if self._only_reads and self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self.out.pause()

    def resume_writing(self) -> None:
        self.out.resume()
        self.incoming.go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.incoming.buffer()

    def buffer_updated(self, count: int) -> None:
        self.incoming.received(count)

    # -- the server's side --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The broker ends: answer what was received, then close."""
        self.incoming.end()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, what: str) -> None:
        _log.info("closed the connection from %s: %s", self.address, what)
        self._server.metrics.refused += 1
        self.incoming.ended = True
        self._transport.abort()

    def _failed(self, error: BaseException) -> None:
        _log.error("internal error in a request of %s", self.address, exc_info=error)
        self._refuse("an internal error")

    def turn_out(self, why: str) -> None:
        """Others need its place, or its room: what it asked for and has not begun is dropped, a wait is given up."""
        self.incoming.drop()
        self._refuse(why)
        if self._patient_since is not None and self._task is not None:
            self._task.cancel()

    def _must_wait(self) -> bool:
        """Whether the next request cannot start for a while: nothing large is taken in for it."""
        return self._patient_since is not None or self.out.is_slow

    def stuck_bytes(self, now: float) -> int:
        """What it holds and gives back only when other clients do something, or when its own takes its answers."""
        since = self._patient_since or self.out.slow_since
        if self.closing or not self._must_wait() or now - since < PATIENCE_S:
            return 0
        return self.incoming.half_bytes + self.incoming.waiting_bytes + self._size_at_hand

    @property
    def last_active(self) -> float:
        return max(self.incoming.last_received, self.out.last_written)

    @property
    def _is_idle(self) -> bool:
        return not self._busy and not self._answers

    def how_idle(self, now: float) -> tuple[int, float] | None:
        """The smaller the less it will be missed; None if it is in use.

        Those that never said anything come first, then those that wait for nothing or do not take their answer, then
        those that wait for records.
        """
        if now - self.last_active < _IN_USE_S or self.closing:
            return None
        if self.incoming.is_first:
            return 0, self.last_active
        if self.out.is_slow or (self._is_idle and not self.incoming.is_waiting):
            return 1, self.last_active
        return (2, self.last_active) if self._only_reads and not self._answers else None

    def sweep(self, now: float) -> None:
        """Called every second or so: close what has been quiet, or half sent, for too long."""
        limits = self._server.limits
        began = self.incoming.frame_began
        patience_s = limits.receive_s * (2 if self.incoming.is_paused else 1)
        if self.peer.is_stranger and now - self.began > limits.login_s:
            self._refuse(f"no login within {limits.login_s:g} s")
        elif began is not None and now - began > patience_s and not self._must_wait():
            self._refuse(f"a request that was not complete after {limits.receive_s:g} s")
        elif self.out.stalled_s(now) > limits.send_s:
            self.out.give_up()
        elif limits.idle_s > 0 and self._is_idle and now - self.last_active > limits.idle_s:
            self._transport.close()

    # -- its requests -------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while (frame := await self.incoming.next_frame()) is not None:
                self._busy = True
                try:
                    await self._answer(frame)
                finally:
                    self._busy = self._only_reads = False
                    self._patient_since = None
                    self.incoming.go_on()
                if self.peer.turned_away:
                    self._server.metrics.refused += 1
                    return
        except MalformedRequest as error:
            self._refuse(str(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)
        finally:
            await self._finish()

    async def _finish(self) -> None:
        """Give what was received and not started back, and close once the answers on their way are written."""
        self.incoming.drop()
        if self._transport is not None:
            if not self._transport.is_closing():
                await self._answers.earlier()
            self._transport.close()

    async def _answer(self, frame: Frame) -> None:
        size = self._size_at_hand = len(frame)
        login = self.peer.login
        try:
            if login is not None and login.takes_raw_tokens:
                self._transport.writelines(await login.answer_raw(bytes(frame)))
                return
            api_key, version = _API.unpack_from(frame)
            if not is_loaded(api_key, version):
                await asyncio.get_running_loop().run_in_executor(self._server.broker.readers, load, api_key, version)
            header = read_header(frame)  # type: ignore[arg-type]
            if login is not None:
                login.check_allowed(header.api_key)
            context = self._context(header)
            self._server.metrics.request(header.api_key)
            route = self._server.routes.get(header.api_key)
            if route is None or not route.min_version <= header.version <= route.max_version:
                context, result = self._unsupported(context)
            else:
                result = await self._run(route, context, header, frame)
            owned, size = size, 0
            await self._answers.put(context, result, owned)
        finally:
            self._server.release(size)
            if login is not None and self.peer.login is None:
                self._server.came_in(self)

    def _context(self, header: RequestHeader) -> Context:
        return Context(
            header.api_key,
            header.version,
            header.correlation_id,
            header.client_id or "",
            f"/{self.address}",
            self.connection_id,
            *self._told,
            self.peer,
        )

    async def _run(self, route: Route, context: Context, header: RequestHeader, frame: Frame) -> Any:
        """The answer as its handler gives it; None if it is written already."""
        async with self._share(header, len(frame)):
            request = await self._read(route, header, frame)
            self._only_reads = header.api_key == _FETCH
            self._patient_since = time.monotonic() if header.api_key in _WAITS_FOR_OTHERS else None
            guard = None if self.peer.acls is None else GUARDS.get(header.api_key)
            if guard is None:
                result = await route.handle(self._server.broker, context, request)
            else:
                result = await guard(route.handle, self._server.broker, context, request)
            self._only_reads = False
            del request
            if isinstance(result, Reply) and result.is_heavy:
                await self._answers.put_heavy(context, result)
                return None
            return result

    async def _read(self, route: Route, header: RequestHeader, frame: Frame) -> Any:
        """The request's body; a large one is read in a thread, while others have their turn."""
        if route.parse is not None:
            return route.parse(header.version, frame, header.body)
        if len(frame) <= SCRATCH_BYTES:
            return read_request(header, bytes(frame))
        return await self._server.in_thread(read_request, header, bytes(frame))

    @staticmethod
    def _unsupported(context: Context) -> tuple[Context, Any]:
        if context.api_key != api_versions.API_KEY:
            raise MalformedRequest(f"API {context.api_key} version {context.version}, which we do not advertise")
        oldest = dataclasses.replace(context, version=0)
        return oldest, api_versions.answer(oldest, ErrorCode.unsupported_version)

    def _share(self, header: RequestHeader, size: int) -> contextlib.AbstractAsyncContextManager[Any]:
        """The right to run a request. Large ones take turns: each may hold as much again while it runs."""
        is_large = size > SCRATCH_BYTES and header.api_key != _PRODUCE and header.api_key not in _WAITS_FOR_OTHERS
        return self._server.large_requests if is_large else contextlib.nullcontext()
