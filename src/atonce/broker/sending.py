"""What answers may hold of our memory: room for a piece is reserved before its records are read, and given back when
the client has taken it.

An answer is sent piece by piece, so a client that takes nothing holds one piece, however much it asked for. When half
of the room is gone pieces become small; when all of it is gone those who want more wait in turn, and whoever has not
taken his piece for the longest time is disconnected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

# Answers up to this size are not worth a reservation: so much, at most twice, is held for each connection.
SMALL_BYTES = 64 * 1024
LARGE_BYTES = 1024 * 1024
# What is granted in one turn of the event loop: a millisecond or two of reading and writing.
_TURN_BYTES = 4 * 1024 * 1024
# How long somebody waits before others are disconnected for him, and how often that is looked at.
_LOOK_S = 0.1

Bytes = bytes | bytearray | memoryview


class Stored(Protocol):
    """Bytes of an answer that are still in a file."""

    def __len__(self) -> int: ...

    def part(self, start: int, length: int) -> Stored: ...

    def read(self) -> bytes: ...


Part = Bytes | Stored


class ResponseRoom:
    """Shared by all connections of a broker; used on its event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.held = 0
        self._turn_left = _TURN_BYTES
        self._turn_began = False
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._looking: asyncio.TimerHandle | None = None
        # Told how many bytes are wanted: disconnects clients that do not read.
        self.relieve: Callable[[int], None] = lambda wanted: None

    @property
    def is_full(self) -> bool:
        return self.held > self._most

    @property
    def is_tight(self) -> bool:
        return self.held + LARGE_BYTES > self._most // 2 or bool(self._waiting)

    @property
    def piece_bytes(self) -> int:
        return SMALL_BYTES if self.is_tight else LARGE_BYTES

    async def reserve(self, size: int) -> None:
        """Wait for room. What was reserved must be released."""
        if not self._waiting and self._fits(size):
            self._grant(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        self._look_later()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size)
            raise

    def take(self, size: int) -> None:
        """For what is there already and cannot wait."""
        self.held += size
        if self.is_full:
            self._look_later()

    def release(self, size: int) -> None:
        self.held -= size
        self._serve()

    def _fits(self, size: int) -> bool:
        return self._turn_left > 0 and (self.held + size <= self._most or not self.held)

    def _grant(self, size: int) -> None:
        self.held += size
        self._turn_left -= size
        if not self._turn_began:
            self._turn_began = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_began = False
        self._turn_left = _TURN_BYTES
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            turn, size = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(size):
                    break
                self._grant(size)
                turn.set_result(None)
            self._waiting.popleft()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Somebody waits: is it for room, and not only for his turn?"""
        self._looking = None
        short = self.held - self._most + sum(size for turn, size in self._waiting if not turn.cancelled())
        if short > 0:
            self.relieve(short)
        if self._waiting or self.is_full:
            self._look_later()


def pieces(parts: Sequence[Part], size: Callable[[], int]) -> Iterator[list[Part]]:
    """The parts of an answer in pieces of about the size that is right when each of them is made."""
    piece: list[Part] = []
    left = size()
    for part in parts:
        start = 0
        while len(part) - start > left:
            if left:
                piece.append(_cut(part, start, left))
                start += left
            yield piece
            piece, left = [], size()
        if start < len(part):
            piece.append(_cut(part, start, len(part) - start))
            left -= len(part) - start
    if piece:
        yield piece


def _cut(part: Part, start: int, length: int) -> Part:
    if length == len(part):
        return part
    return memoryview(part)[start : start + length] if isinstance(part, Bytes) else part.part(start, length)


def read(piece: Sequence[Part]) -> list[Bytes]:
    """The bytes. Raises OSError where a file has fewer than it had: what was announced cannot be kept any more."""
    return [part if isinstance(part, Bytes) else _whole(part) for part in piece]


def _whole(part: Stored) -> bytes:
    data = part.read()
    if len(data) != len(part):
        raise OSError(f"{len(data)} bytes where {len(part)} were stored")
    return data
