"""What one connection is sent: written as fast as its client takes it, and no faster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from atonce.broker.metrics import Metrics
from atonce.broker.sending import SMALL_BYTES, Bytes, Part, ResponseRoom, pieces, read

_log = logging.getLogger(__name__)

# Closed so, the client is told at once, and what it has not taken is dropped.
_NO_LINGER = struct.pack("ii", 1, 0)
# Pieces of larger answers are read in a thread, unless they are small.
_READ_IN_THREAD_BYTES = 1024 * 1024


class Outgoing:
    """The writing half of a connection. `give_up` disconnects a client that does not read."""

    def __init__(
        self,
        room: ResponseRoom,
        slow: set[Outgoing],
        readers: Executor,
        metrics: Metrics,
        refuse: Callable[[str], None],
    ) -> None:
        self.last_written = 0.0
        self.slow_since = 0.0  # since when its client has not taken what it was sent last
        self._room = room
        self._slow = slow  # those of all connections that do not take their answers as fast as we write them
        self._readers = readers
        self._metrics = metrics
        self._refuse = refuse
        self._transport: Any = None
        self._is_encrypted = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._stalled_since = 0.0
        self._least_unsent = 0

    def begin(self, transport: Any, *, is_encrypted: bool) -> None:
        self._transport, self._is_encrypted = transport, is_encrypted
        transport.set_write_buffer_limits(high=SMALL_BYTES, low=0)

    # -- told by the transport ----------------------------------------------------------------------------------

    def pause(self) -> None:
        self._writable.clear()
        self.slow_since = self._stalled_since = time.monotonic()
        self._least_unsent = self.unsent_bytes
        self._slow.add(self)

    def resume(self) -> None:
        self._writable.set()
        self._slow.discard(self)

    # -- asked by those who need the room -----------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        return int(self._transport.get_write_buffer_size())

    @property
    def is_slow(self) -> bool:
        return not self._writable.is_set()

    def stalled_s(self, now: float) -> float:
        """For how long its client has read nothing of the answers that wait for it."""
        if not self.is_slow:
            return 0.0
        unsent = self.unsent_bytes
        if unsent < self._least_unsent:
            self._least_unsent, self._stalled_since = unsent, now
        return now - self._stalled_since

    def give_up(self) -> None:
        """What it holds is needed by others, or has been held for too long. The kernel keeps nothing of it, either."""
        self._slow.discard(self)
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._refuse(f"{self.unsent_bytes} bytes of answers that its client does not read")

    # -- writing ------------------------------------------------------------------------------------------------

    def put(self, parts: Sequence[Bytes]) -> None:
        if self._transport.is_closing():
            return
        self._metrics.bytes_out += sum(len(part) for part in parts)
        self.last_written = time.monotonic()
        # Each part would be a TLS record of its own.
        self._transport.writelines((b"".join(parts),) if self._is_encrypted else parts)

    async def taken(self) -> None:
        """Until the client has taken so much that there may be another answer; what waits for it counts meanwhile."""
        if self.is_slow:
            size = self.unsent_bytes
            self._room.take(size)
            try:
                await self._writable.wait()
            finally:
                self._room.release(size)

    async def send_stored(self, parts: Sequence[Part]) -> None:
        """An answer with records that are still in files: a piece is read when there is room for it."""
        is_long = sum(len(part) for part in parts) > _READ_IN_THREAD_BYTES
        for piece in pieces(parts, lambda: SMALL_BYTES if self._is_encrypted else self._room.piece_bytes):
            size = sum(len(part) for part in piece)
            await self._room.reserve(size)
            try:
                if self._transport.is_closing():
                    return
                self.put(await self._in_thread(piece) if is_long and size > SMALL_BYTES else read(piece))
                await self._writable.wait()
            except OSError as error:
                _log.warning("records that were asked for cannot be read: %s", error)
                self._refuse("an answer whose records cannot be read")
                return
            finally:
                self._room.release(size)

    async def _in_thread(self, piece: Sequence[Part]) -> list[Bytes]:
        return await asyncio.get_running_loop().run_in_executor(self._readers, read, piece)
