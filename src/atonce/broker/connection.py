"""One client connection: frames in, answers out in the order of the requests.

Requests of one connection start one after another. An answer that is still waited for (`Later`) does not hold up the
next request, only its answer. Bytes are read straight into the frame they belong to, and never before its size was
checked. Memory is reserved for what has arrived, not for what was announced.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from atonce.broker.access import GUARDS
from atonce.broker.context import Context, Later
from atonce.broker.handlers import api_versions
from atonce.broker.messages import (
    ErrorCode,
    MalformedRequest,
    Reply,
    RequestHeader,
    encode_body,
    encode_response,
    is_loaded,
    load,
    read_header,
    read_request,
)
from atonce.broker.peer import Peer
from atonce.broker.tls import principal

if TYPE_CHECKING:
    from atonce.broker.listeners import Listener
    from atonce.broker.router import Route
    from atonce.broker.server import Server

_log = logging.getLogger(__name__)

_SIZE = Struct(">i")
_KEY = Struct(">h")
_API = Struct(">hh")
_SCRATCH_BYTES = 16 * 1024
_CHUNK_BYTES = 256 * 1024
_SMALLEST_FRAME = 10
_PRODUCE = 0
_FETCH = 1
# Answers of one connection that may be waited for at once: more than any client keeps in flight.
_MOST_UNANSWERED = 128
# Requests held of somebody who has not logged in yet.
_STRANGERS_REQUESTS = 4
# A connection on which something happened within this time is not let go for a newcomer.
_IN_USE_S = 1.0
# Above this, the next request of the connection waits until the client has read more of its answers.
_UNSENT_BYTES = 4 * 1024 * 1024
# What a client has not read counts from here on; below, there would be too many to count.
_COUNTED_BYTES = 64 * 1024


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Server, connection_id: int, listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self._told = ("", 0)  # where this client finds us
        self.connection_id = connection_id
        self.peer: Peer = server.peer(listener)
        self.address = ""
        self._transport: Any = None
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None  # a frame too large for the scratch buffer
        self._frame_size = 0  # what was announced; the buffer grows towards it
        self._frame_filled = 0
        self._frame_began: float | None = None
        self._first = True
        self._frames: deque[bytes | bytearray] = deque()
        self._frames_waiting: asyncio.Future[None] | None = None
        self._answers: deque[tuple[Context, asyncio.Future[Any], int]] = deque()
        self._room: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self.closing = False
        self.began = self.last_active = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._only_reads = False
        self._is_wrapped = False
        self._stalled_since = 0.0
        self._least_unsent = 0

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
            self.closing = True
            transport.abort()
            return False
        return True

    def _begin(self, transport: Any) -> None:
        self._transport = transport
        if not self.peer.is_stranger:
            self._server.came_in(self)
        transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        self._server.limits.size_buffers(transport.get_extra_info("socket"))
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        self._server.slow.discard(self)
        if self._frame is not None:
            self._server.release(len(self._frame))
            self._frame = None
        self._server.forget(self)
        self._hang_up()

    def eof_received(self) -> bool:
        self._hang_up()
        # What was received is still answered; then `_serve` closes. TLS cannot be half closed.
        return not self._is_wrapped

    def _hang_up(self) -> None:
        """Nothing more will come. A fetch that waits for data is given up; whatever changes something is finished."""
        self.closing = True
        self._wake()
        if self._only_reads and self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        """The broker ends: answer what was received, then close."""
        self.closing = True
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._falls_behind()
        self._server.relieve()

    def _falls_behind(self) -> None:
        if self not in self._server.slow:
            self._stalled_since = time.monotonic()
            self._least_unsent = self.unsent_bytes
            self._server.slow.add(self)

    def resume_writing(self) -> None:
        self._writable.set()
        self._server.slow.discard(self)

    def stalled_s(self, now: float) -> float:
        """For how long its client has read nothing of the answers that wait for it."""
        unsent = self.unsent_bytes
        if unsent < self._least_unsent:
            self._least_unsent, self._stalled_since = unsent, now
        return now - self._stalled_since

    def give_up(self) -> None:
        """Its client does not read: what it holds is needed by others."""
        self._refuse(f"{self.unsent_bytes} bytes of answers that its client does not read")

    @property
    def unsent_bytes(self) -> int:
        return int(self._transport.get_write_buffer_size())

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                self._grow(min(self._frame_size - len(self._frame), max(_CHUNK_BYTES, len(self._frame))))
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self.last_active = time.monotonic()
        self._server.metrics.bytes_in += count
        if self._frame is not None:
            self._frame_filled += count
            if self._frame_filled == self._frame_size:
                frame, self._frame, self._frame_began = self._frame, None, None
                self._take(frame)
            elif self._server.is_overfull:
                self._balance()
            return
        self._filled += count
        self._cut()

    def _cut(self) -> None:
        """Take the whole frames out of the scratch buffer, and start one that does not fit it."""
        position = 0
        while self._filled - position >= 4 and not self.closing:
            (size,) = _SIZE.unpack_from(self._scratch, position)
            if size < self._smallest_frame() or size > self._limit(size, position):
                self._refuse(f"a request of {size} bytes")
                return
            end = position + 4 + size
            if end <= self._filled:
                self._server.reserve(size)
                self._take(bytes(memoryview(self._scratch)[position + 4 : end]))
                position = end
            elif size + 4 > _SCRATCH_BYTES:
                if self._filled - position < 6 and not self._first:
                    break  # the limit depends on the API key, which is not there yet
                self._frame = bytearray()
                self._frame_size = size
                self._grow(min(size, _CHUNK_BYTES))
                self._frame_filled = self._filled - position - 4
                self._frame[: self._frame_filled] = memoryview(self._scratch)[position + 4 : self._filled]
                position = self._filled
                break
            else:
                break
        rest = self._filled - position
        if position and rest:
            self._scratch[:rest] = self._scratch[position : self._filled]
        self._filled = rest
        partial = rest or self._frame is not None
        self._frame_began = (self._frame_began or time.monotonic()) if partial else None
        self._balance()

    def _smallest_frame(self) -> int:
        login = self.peer.login
        return 1 if login is not None and login.takes_raw_tokens else _SMALLEST_FRAME

    def _grow(self, more: int) -> None:
        if self._frame is not None:
            self._server.reserve(more)
            self._frame += bytes(more)

    def _limit(self, size: int, position: int) -> int:
        limits = self._server.limits
        if self._first or self.peer.login is not None:
            return limits.first_request_bytes
        if size <= limits.control_request_bytes or self._filled - position < 6:
            return limits.request_bytes
        (api_key,) = _KEY.unpack_from(self._scratch, position + 4)
        return limits.request_bytes if api_key == _PRODUCE else limits.control_request_bytes

    def _take(self, frame: bytes | bytearray) -> None:
        self._first = False
        self._frames.append(frame)
        self._wake()
        self._balance()

    def _balance(self) -> None:
        """Stop reading while too much is held, here or in the whole broker; go on when there is room again."""
        # Half a request goes on for a while, or nobody could ever finish.
        server = self._server
        most = server.limits.queued_requests if self.peer.login is None else _STRANGERS_REQUESTS
        full = len(self._frames) >= most or (server.is_full if self._frame is None else server.is_overfull)
        if full and not self._paused and not self.closing:
            self._paused = True
            self._transport.pause_reading()
            self._server.wait_for_room(self)
        elif not full and self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    room_made = _balance

    def _wake(self) -> None:
        if self._frames_waiting is not None and not self._frames_waiting.done():
            self._frames_waiting.set_result(None)

    def _refuse(self, what: str) -> None:
        _log.info("closed the connection from %s: %s", self.address, what)
        self._server.metrics.refused += 1
        self.closing = True
        self._transport.abort()

    turn_out = _refuse

    def how_idle(self, now: float) -> tuple[int, float] | None:
        """The smaller the less it will be missed; None if it is in use.

        Those that never said anything come first, then those that wait for nothing, then those that wait for records.
        """
        if now - self.last_active < _IN_USE_S or self.closing:
            return None
        if self._first:
            return 0, self.last_active
        if not self._busy and not self._answers and not self._frames:
            return 1, self.last_active
        return (2, self.last_active) if self._only_reads and not self._answers else None

    def sweep(self, now: float) -> None:
        """Called every second or so: close what has been quiet, or half sent, for too long."""
        limits = self._server.limits
        if self in self._server.slow and not self.unsent_bytes and self._writable.is_set():
            self._server.slow.discard(self)
        began = self._frame_began
        patience_s = limits.receive_s * (2 if self._paused else 1)
        if self.peer.is_stranger and now - self.began > limits.login_s:
            self._refuse(f"no login within {limits.login_s:g} s")
        elif began is not None and now - began > patience_s:
            self._refuse(f"a request that was not complete after {limits.receive_s:g} s")
        elif self in self._server.slow and self.stalled_s(now) > limits.send_s:
            self.give_up()
        elif limits.idle_s > 0 and not self._busy and not self._answers and now - self.last_active > limits.idle_s:
            self._transport.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- the broker's side --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while True:
                while not self._frames:
                    if self.closing:
                        return
                    self._frames_waiting = asyncio.get_running_loop().create_future()
                    await self._frames_waiting
                frame = self._frames.popleft()
                self._busy = True
                try:
                    await self._answer(frame)
                finally:
                    self._busy = self._only_reads = False
                    if self._paused:
                        self._balance()
                if self.peer.turned_away:
                    self._server.metrics.refused += 1
                    return
        except MalformedRequest as error:
            self._refuse(str(error))
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("internal error in a request of %s", self.address)
            self._refuse("an internal error")
        finally:
            await self._finish()

    async def _finish(self) -> None:
        """Give what was received and not started back, and close once the answers on their way are written."""
        while self._frames:
            self._server.release(len(self._frames.popleft()))
        while self._answers and not self._transport.is_closing():
            await asyncio.wait([self._answers[0][1]])
            self._pump()
        if self._transport is not None:
            self._transport.close()

    async def _answer(self, frame: bytes | bytearray) -> None:
        size = len(frame)
        later = False
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
            route = self._server.routes.get(header.api_key)
            context = Context(
                header.api_key,
                header.version,
                header.correlation_id,
                header.client_id or "",
                f"/{self.address}",
                self.connection_id,
                *self._told,
                self.peer,
            )
            self._server.metrics.request(header.api_key)
            if route is None or not route.min_version <= header.version <= route.max_version:
                result = self._unsupported(context)
            else:
                request = await self._read(route, header, frame)
                self._only_reads = header.api_key == _FETCH
                guard = None if self.peer.acls is None else GUARDS.get(header.api_key)
                if guard is None:
                    result = await route.handle(self._server.broker, context, request)
                else:
                    result = await guard(route.handle, self._server.broker, context, request)
                self._only_reads = False
                del request
                if isinstance(result, Reply) and result.is_heavy:
                    result = await self._in_thread(encode_body, result)
            if isinstance(result, Later):
                later = True
                await self._queue(context, result.response, size)
                return
            if result is None:
                return
            if self._answers:
                done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                done.set_result(result)
                later = True
                await self._queue(context, done, size)
                return
            self._write(context, result)
            await self._writable.wait()
        finally:
            if not later:
                self._server.release(size)
            if login is not None and self.peer.login is None:
                self._server.came_in(self)

    async def _read(self, route: Route, header: RequestHeader, frame: bytes | bytearray) -> Any:
        """The request's body; a large one is read in a thread, while others have their turn."""
        if route.parse is not None:
            return route.parse(header.version, frame, header.body)
        if len(frame) <= _SCRATCH_BYTES:
            return read_request(header, bytes(frame))
        return await self._in_thread(read_request, header, bytes(frame))

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._server.broker.large, work, *args)

    def _unsupported(self, context: Context) -> Any:
        if context.api_key != api_versions.API_KEY:
            raise MalformedRequest(f"API {context.api_key} version {context.version}, which we do not advertise")
        oldest = dataclasses.replace(context, version=0)
        parts = encode_response(
            oldest.api_key, 0, oldest.correlation_id, api_versions.answer(oldest, ErrorCode.unsupported_version)
        )
        self._server.metrics.bytes_out += sum(len(part) for part in parts)
        self._transport.writelines(parts)

    async def _queue(self, context: Context, answer: asyncio.Future[Any], size: int) -> None:
        self._answers.append((context, answer, size))
        answer.add_done_callback(self._pump)
        while len(self._answers) >= _MOST_UNANSWERED:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        await self._writable.wait()

    def _pump(self, _: Any = None) -> None:
        """Write the answers that are ready and whose turn it is."""
        while self._answers and self._answers[0][1].done():
            context, answer, size = self._answers.popleft()
            self._server.release(size)
            if answer.cancelled():
                continue
            error = answer.exception()
            if error is not None:
                _log.error("internal error in a request of %s", self.address, exc_info=error)
                self._refuse("an internal error")
                continue
            result = answer.result()
            if result is not None:
                self._write(context, result)
        if self._room is not None and not self._room.done() and len(self._answers) < _MOST_UNANSWERED:
            self._room.set_result(None)

    def _write(self, context: Context, result: Any) -> None:
        if self._transport.is_closing():
            return
        parts = encode_response(context.api_key, context.version, context.correlation_id, result)
        self._server.metrics.bytes_out += sum(len(part) for part in parts)
        self.last_active = time.monotonic()
        # Each part would be a TLS record of its own.
        self._transport.writelines((b"".join(parts),) if self._is_wrapped else parts)
        if (unsent := self.unsent_bytes) > _COUNTED_BYTES:
            self._server.unsent_more(unsent)
            self._falls_behind()
