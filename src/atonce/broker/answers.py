"""What one connection is answered: in the order of its requests, though some answers are waited for together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from atonce.broker.context import Context, Later
from atonce.broker.messages import Raw, Reply, encode_body, encode_response
from atonce.broker.outgoing import Outgoing

if TYPE_CHECKING:
    from atonce.broker.server import Server

# Answers of one connection that may be waited for at once: more than any client keeps in flight.
_MOST_UNANSWERED = 128


class Answers:
    def __init__(self, server: Server, out: Outgoing, failed: Callable[[BaseException], None]) -> None:
        self._server = server
        self._out = out
        self._failed = failed
        self._waiting: deque[tuple[Context, asyncio.Future[Any], int]] = deque()
        self._room: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        """Whether some are still waited for."""
        return bool(self._waiting)

    async def put(self, context: Context, result: Any, size: int) -> None:
        """Written now, or when those before it are. Then the room of the request (`size`) is given back."""
        if result is not None and self._waiting and not isinstance(result, Later) and not _is_stored(result):
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_result(result)
            result = Later(done)
        if isinstance(result, Later):
            await self._queue(context, result.response, size)
            await self._out.taken()
            return
        try:
            if result is not None and _is_stored(result):
                await self.earlier()
                await self._out.send_stored(_encoded(context, result))
            elif result is not None:
                self._write(context, result)
            await self._out.taken()
        finally:
            self._server.release(size)

    async def put_heavy(self, context: Context, reply: Reply) -> None:
        """Encoded in a thread, one at a time, and not before there is room for what others have been sent."""
        await self.earlier()
        async with self._server.one_heavy:
            await self._server.room.reserve(0)
            self._write(context, await self._server.in_thread(encode_body, reply))

    async def earlier(self) -> None:
        """Until everything that was asked before is answered."""
        while self._waiting:
            await asyncio.wait([self._waiting[0][1]])
            self._pump()

    async def _queue(self, context: Context, answer: asyncio.Future[Any], size: int) -> None:
        self._waiting.append((context, answer, size))
        answer.add_done_callback(self._pump)
        while len(self._waiting) >= _MOST_UNANSWERED:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _pump(self, _: Any = None) -> None:
        """Write the answers that are ready and whose turn it is."""
        while self._waiting and self._waiting[0][1].done():
            context, answer, size = self._waiting.popleft()
            self._server.release(size)
            if answer.cancelled():
                continue
            error = answer.exception()
            if error is not None:
                self._failed(error)
            elif (result := answer.result()) is not None:
                self._write(context, result)
        if self._room is not None and not self._room.done() and len(self._waiting) < _MOST_UNANSWERED:
            self._room.set_result(None)

    def _write(self, context: Context, result: Any) -> None:
        self._out.put(_encoded(context, result))


def _encoded(context: Context, result: Any) -> list[Any]:
    return encode_response(context.api_key, context.version, context.correlation_id, result)


def _is_stored(result: Any) -> bool:
    return isinstance(result, Raw) and result.is_stored
