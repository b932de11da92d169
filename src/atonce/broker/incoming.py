"""What one connection sends: bytes become frames, and only as many are held as there is room for.

Bytes are read straight into the frame they belong to, and never before its size was checked. Memory is reserved for
what has arrived, not for what was announced.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from atonce.broker.peer import Peer

if TYPE_CHECKING:
    from atonce.broker.server import Server

_SIZE = Struct(">i")
_KEY = Struct(">h")
_PRODUCE = 0
SCRATCH_BYTES = 16 * 1024
_CHUNK_BYTES = 256 * 1024
_SMALLEST_FRAME = 10
# Bytes of requests that wait behind the one at hand; whoever sends more is not read from until they were started.
_WAITING_BYTES = 256 * 1024
# Requests held of somebody who has not logged in yet.
_STRANGERS_REQUESTS = 4
# What a client must have done, or he is disconnected when others need the room that he takes.
PATIENCE_S = 0.4
# And whoever trickles, if others wait: fewer bytes per second than this, for so long.
_SLOW_RATE, _SLOW_S = 64 * 1024, 2.0

Frame = bytes | bytearray


class Incoming:
    """The reading half of a connection. `must_wait`: the next request cannot start for a while."""

    def __init__(
        self, server: Server, peer: Peer, must_wait: Callable[[], bool], refuse: Callable[[str], None]
    ) -> None:
        self._server = server
        self._peer = peer
        self._must_wait = must_wait
        self._refuse = refuse
        self._transport: Any = None
        self._scratch = server.scratch  # one of its own only while it holds part of a request
        self._filled = 0
        self._frame: bytearray | None = None  # a frame too large for the scratch buffer
        self._frame_size = 0  # what was announced; the buffer grows towards it
        self._frame_filled = 0
        self._frames: deque[Frame] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self.frame_began: float | None = None  # a request that is not complete yet
        self.waiting_bytes = 0  # of whole frames that were not begun
        self.is_first = True  # nothing was ever said
        self.is_paused = False
        self.ended = False  # nothing more will come, or is wanted
        self.last_received = time.monotonic()

    def begin(self, transport: Any) -> None:
        self._transport = transport

    # -- told by the transport ----------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                self._grow(min(self._frame_size - len(self._frame), max(_CHUNK_BYTES, len(self._frame))))
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def received(self, count: int) -> None:
        self.last_received = time.monotonic()
        self._server.metrics.bytes_in += count
        if self._frame is not None:
            self._frame_filled += count
            if self._frame_filled == self._frame_size:
                frame, self._frame, self.frame_began = self._frame, None, None
                self._take(frame)
            elif self._server.is_overfull or self._must_wait():
                self.balance()
            return
        self._filled += count
        self._cut()

    def _cut(self) -> None:
        """Take the whole frames out of the scratch buffer, and start one that does not fit it."""
        position = 0
        while self._filled - position >= 4 and not self.ended:
            (size,) = _SIZE.unpack_from(self._scratch, position)
            if size < self._smallest_frame() or size > self._limit(size, position):
                self._refuse(f"a request of {size} bytes")
                return
            end = position + 4 + size
            if end <= self._filled:
                self._server.reserve(size)
                self._take(bytes(memoryview(self._scratch)[position + 4 : end]))
                position = end
            elif size + 4 > SCRATCH_BYTES and (self._filled - position >= 6 or self.is_first):
                self._start_large(size, position + 4)
                position = self._filled
            else:
                break  # the rest of it is not there yet, or the API key on which its limit depends
        self._keep_from(position)
        partial = self._filled or self._frame is not None
        self.frame_began = (self.frame_began or time.monotonic()) if partial else None
        self.balance()

    def _start_large(self, size: int, start: int) -> None:
        self._frame = bytearray()
        self._frame_size = size
        self._grow(min(size, _CHUNK_BYTES))
        self._frame_filled = self._filled - start
        self._frame[: self._frame_filled] = memoryview(self._scratch)[start : self._filled]

    def _keep_from(self, position: int) -> None:
        """What is left moves to the front; a scratch buffer that holds nothing is everybody's."""
        rest = self._filled - position
        if not rest:
            self._scratch = self._server.scratch
        elif position or self._scratch is self._server.scratch:
            kept = self._scratch[position : self._filled]
            if self._scratch is self._server.scratch:
                self._scratch = bytearray(SCRATCH_BYTES)
            self._scratch[:rest] = kept
        self._filled = rest

    def _smallest_frame(self) -> int:
        login = self._peer.login
        return 1 if login is not None and login.takes_raw_tokens else _SMALLEST_FRAME

    def _grow(self, more: int) -> None:
        if self._frame is not None:
            self._server.reserve(more)
            self._frame += bytes(more)

    def _limit(self, size: int, position: int) -> int:
        limits = self._server.limits
        if self.is_first or self._peer.login is not None:
            return limits.first_request_bytes
        if size <= limits.control_request_bytes or self._filled - position < 6:
            return limits.request_bytes
        (api_key,) = _KEY.unpack_from(self._scratch, position + 4)
        return limits.request_bytes if api_key == _PRODUCE else limits.control_request_bytes

    def _take(self, frame: Frame) -> None:
        self.is_first = False
        self._frames.append(frame)
        self.waiting_bytes += len(frame)
        self._wake()
        self.balance()

    # -- asked by the connection --------------------------------------------------------------------------------

    async def next_frame(self) -> Frame | None:
        """None: there are no more."""
        while not self._frames:
            if self.ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        frame = self._frames.popleft()
        self.waiting_bytes -= len(frame)
        self.go_on()
        return frame

    def end(self) -> None:
        self.ended = True
        self._wake()

    def drop(self) -> None:
        """Give back the room of what was not begun."""
        while self._frames:
            self._server.release(len(self._frames.popleft()))
        self.waiting_bytes = 0

    def drop_half(self) -> None:
        if self._frame is not None:
            self._server.release(len(self._frame))
            self._frame = None

    def go_on(self) -> None:
        """Something changed for the better: perhaps it may be read from again."""
        if self.is_paused:
            self.balance()

    def balance(self) -> None:
        """Stop reading while too much is held, here or in the whole broker; go on when there is room again."""
        server = self._server
        most = server.limits.queued_requests if self._peer.login is None else _STRANGERS_REQUESTS
        full = len(self._frames) >= most or self.waiting_bytes >= _WAITING_BYTES
        # Half a request goes on for a while, or nobody could ever finish.
        shared_full = server.is_full if self._frame is None else server.is_overfull
        full = full or shared_full or (self._frame is not None and self._must_wait())
        if full and not self.ended:
            if shared_full:
                server.wait_for_room(self)
            if not self.is_paused:
                self.is_paused = True
                self._transport.pause_reading()
        elif not full and self.is_paused and not self._transport.is_closing():
            self.is_paused = False
            if self.frame_began is not None:
                self.frame_began = time.monotonic()
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    # -- asked by those who need the room -----------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether whole requests wait for their turn."""
        return bool(self._frames)

    @property
    def half_bytes(self) -> int:
        return 0 if self._frame is None else len(self._frame)

    @property
    def missing_bytes(self) -> int:
        return self._frame_size - self._frame_filled

    def arrives_too_slowly(self, now: float) -> float | None:
        """Bytes per second of a large request that keeps others waiting; None if there is none, or it comes fast."""
        if self._frame is None or self.is_paused or self.frame_began is None:
            return None
        age_s = now - self.frame_began
        rate = self._frame_filled / max(age_s, 0.001)
        is_silent = min(age_s, now - self.last_received) >= PATIENCE_S
        return rate if is_silent or (age_s >= _SLOW_S and rate < _SLOW_RATE) else None
