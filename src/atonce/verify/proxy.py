"""A Kafka-aware TCP proxy between the subject and the broker, in a thread of its own.

One listener per broker node. It reads the header of every request and as much of the body as the rules need, rewrites
the addresses that brokers advertise so that all traffic comes through here, and applies one-shot rules (rules.py).
Record data passes through as the bytes it came in.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from atonce.errors import UnreachableError
from atonce.verify.advertised import Addresses, learn_topics, rewrite
from atonce.verify.history import Entry, History
from atonce.verify.rules import Action, Rule
from atonce.verify.wire import DECODED, Facts, Request, error_codes, facts, parse_request

_LENGTH = struct.Struct(">i")
_MAX_FRAME_BYTES = 256 << 20
_CUT = (Action.DROP_REQUEST, Action.DELAY, Action.CALL_BEFORE)


class Proxy:
    """`servers` is what the subject is given. Use as a context manager."""

    def __init__(self, upstream: str, history: History | None = None, host: str = "127.0.0.1") -> None:
        self.history = history or History()
        self.positions: dict[tuple[str, int], int] = {}
        """(topic, partition) → the offset from which the subject last asked to read."""
        self.adjust: Callable[[Request, Facts], Request] | None = None
        """Rewrites a request on its way (a shorter transaction time-out, say)."""
        self._host = host
        self._upstream = [_address(part) for part in upstream.split(",")]
        self._rules: list[Rule] = []
        self._links: set[_Link] = set()
        self._topics: dict[Any, str] = {}
        self._listeners: dict[tuple[str, int], tuple[str, int]] = {}
        self._servers: list[asyncio.Server] = []
        self._open: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="atonce-verify-proxy", daemon=True)
        self._next = 0
        self._thread.start()
        try:
            self._call(self._begin())
        except OSError as error:
            self.close()
            raise UnreachableError(f"the proxy could not listen on {host}: {error}") from error

    @property
    def servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in (self._listeners[at] for at in self._upstream))

    # Rules and connections ------------------------------------------------------------------------------------------

    def add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget the rules, let go of what is held, and begin a new page of history."""
        for rule in self._rules:
            rule.release()
        self._rules = []
        self.positions = {}
        self.adjust = None
        self.heal()

    def partition(self) -> None:
        """From here on no byte passes in either direction; connections stay open."""
        self._call(self._set_open(False))

    def heal(self, *, cut: bool = False) -> None:
        """Bytes pass again. With `cut`, those held back are lost with their connections."""
        if cut:
            self.cut()
        self._call(self._set_open(True))

    def cut(self) -> None:
        """Close every connection."""
        self._call(self._cut_all())

    def new_page(self) -> History:
        self.history = History()
        return self.history

    def close(self) -> None:
        if self._loop.is_closed():
            return
        with contextlib.suppress(Exception):
            self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The loop's side ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[Any, Any, None], timeout_s: float = 10.0) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    async def _begin(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        for at in self._upstream:
            await self.listener(at)

    async def _set_open(self, value: bool) -> None:
        if self._open is not None:
            if value:
                self._open.set()
            else:
                self._open.clear()

    async def _cut_all(self) -> None:
        for link in list(self._links):
            link.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        await self._cut_all()
        await asyncio.sleep(0)

    async def listener(self, at: tuple[str, int]) -> tuple[str, int]:
        """Our address for the broker at `at`; a listener is opened for it when there is none yet."""
        if at not in self._listeners:
            server = await asyncio.start_server(lambda r, w: self._accept(at, r, w), self._host, 0, limit=1 << 20)
            if at in self._listeners:
                server.close()
            else:
                self._servers.append(server)
                self._listeners[at] = (self._host, int(server.sockets[0].getsockname()[1]))
        return self._listeners[at]

    async def _accept(self, at: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.passage()
        self._next += 1
        try:
            up_reader, up_writer = await asyncio.open_connection(*at, limit=1 << 20)
        except OSError:
            writer.close()
            return
        link = _Link(self, self._next, at, (reader, writer), (up_reader, up_writer))
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def passage(self) -> None:
        """Waits while there is a network partition."""
        if self._open is not None:
            await self._open.wait()

    def pick(self, request: Request, found: Facts) -> Rule | None:
        for rule in self._rules:
            if rule.matches(request, found):
                rule.fire(request, found)
                return rule
        return None

    def topic_name(self, topic_id: Any) -> str:
        return self._topics.get(topic_id, str(topic_id))

    def learn(self, request: Request, body: Any) -> None:
        learn_topics(request, body, self._topics)


class _Link:
    """One connection of the subject and the one behind it to the broker."""

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        at: tuple[str, int],
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.proxy, self.number, self.at = proxy, number, at
        self.client_reader, self.client = client
        self.broker_reader, self.broker = broker
        self.pending: dict[int, tuple[Request, Entry, Rule | None]] = {}

    async def run(self) -> None:
        both = [asyncio.ensure_future(self.requests()), asyncio.ensure_future(self.responses())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self.close()

    def close(self) -> None:
        for writer in (self.client, self.broker):
            # Abort, not close: nothing that is still buffered may slip through a cut.
            with contextlib.suppress(Exception):
                writer.transport.abort()

    async def requests(self) -> None:
        while (frame := await _read_frame(self.client_reader)) is not None:
            await self.proxy.passage()
            request = parse_request(frame)
            if request is None:
                await _write_frame(self.broker, frame)
                continue
            found = facts(request, self.proxy.topic_name)
            if self.proxy.adjust is not None:
                request = self.proxy.adjust(request, found)
            if request.api == "fetch":
                self.proxy.positions.update({(topic, part): offset for topic, part, offset in found.offsets})
            entry = Entry(
                at=time.time(),
                connection=self.number,
                client_id=request.client_id,
                api=request.api,
                version=request.version,
                facts=found,
            )
            # Reads are many and say nothing that `positions` does not; keeping them all would drown the rest.
            if request.api in DECODED and request.api not in ("fetch", "heartbeat"):
                self.proxy.history.add(entry)
            rule = self.proxy.pick(request, found)
            if not await self.forward(request, entry, rule):
                return

    async def forward(self, request: Request, entry: Entry, rule: Rule | None) -> bool:
        """False ends the connection."""
        action = rule.action if rule else None
        if rule and action in _CUT:
            entry.outcome = "dropped"
            if action is Action.DELAY:
                entry.outcome = "unknown"
                self.proxy._loop.create_task(self.late(request, entry, rule))
            if action is Action.CALL_BEFORE:
                await _in_thread(rule)
            if action is not Action.DELAY:
                rule.finish()
            return False
        if rule and action is Action.FAIL:
            from atonce.verify.fabricate import failed_response

            entry.outcome = "failed"
            await _write_frame(self.client, failed_response(request, rule.error))
            rule.finish()
            return True
        if rule and action is Action.STALL:
            while not rule.released:
                await asyncio.sleep(0.01)
            rule.finish()
        if rule and action is Action.CALL_BESIDE:
            await _in_thread(rule)
            rule.finish()
        if entry.facts.acks == 0:
            entry.outcome = "answered"  # the subject asked for no answer and gets none
            await _write_frame(self.broker, request.frame)
            if rule:
                if rule.call:
                    await _in_thread(rule)
                rule.finish()
                return action not in (Action.DROP_RESPONSE, Action.CALL_AFTER)
            return True
        self.pending[request.correlation_id] = (request, entry, rule)
        await _write_frame(self.broker, request.frame)
        if rule and action is Action.DUPLICATE:
            rule.answer = await self.ask_aside(request)
            rule.finish()
        if rule and action is Action.CALL_WITH:
            await _in_thread(rule)
            rule.finish()
        return True

    async def late(self, request: Request, entry: Entry, rule: Rule) -> None:
        """A request that was on its way while its connection died, and arrives all the same."""
        while not rule.released:
            await asyncio.sleep(0.005)
        with contextlib.suppress(OSError, TimeoutError):
            entry.facts.extra["arrived_at"] = time.time()
            rule.answer = await asyncio.wait_for(self.ask_aside(request), 10)
        if rule.answer is not None:
            self.note(request, entry, rule.answer)
        rule.finish()

    async def ask_aside(self, request: Request) -> bytes | None:
        """The same request once more, on a connection of its own."""
        reader, writer = await asyncio.open_connection(*self.at, limit=1 << 20)
        try:
            await _write_frame(writer, request.frame)
            return await _read_frame(reader)
        finally:
            writer.close()

    async def responses(self) -> None:
        while (frame := await _read_frame(self.broker_reader)) is not None:
            await self.proxy.passage()
            known = self.pending.pop(_LENGTH.unpack_from(frame)[0], None)
            if known is None:
                await _write_frame(self.client, frame)
                continue
            request, entry, rule = known
            frame = await self.note_and_rewrite(request, entry, frame)
            if rule and rule.action is Action.DROP_RESPONSE:
                rule.finish()
                return
            if rule and rule.action is Action.CALL_AFTER:
                await _in_thread(rule)
                rule.finish()
                return
            await _write_frame(self.client, frame)

    async def note_and_rewrite(self, request: Request, entry: Entry, frame: bytes) -> bytes:
        body = self.note(request, entry, frame)
        if body is None:
            return frame
        self.proxy.learn(request, body)
        wanted = Addresses(body)
        if not wanted.found:
            return frame
        ours = {at: await self.proxy.listener(at) for at in wanted.found}
        return request.response_frame(rewrite(body, ours))

    def note(self, request: Request, entry: Entry, frame: bytes) -> Any | None:
        entry.answered_at = time.time()
        entry.outcome = "answered"
        # A fetch response is record data; its body is read only where it could carry addresses of other nodes.
        if request.api == "fetch" and (request.version < 16 or len(self.proxy._listeners) == 1):
            return None
        read = request.response_body(frame)
        if read is None:
            return None
        body = read[0]
        entry.errors = error_codes(body)
        if request.api == "produce":
            entry.base_offsets = tuple(
                (topic, int(part.index), int(part.base_offset))
                for topic, entries in zip(entry.facts.topics, body.responses, strict=False)
                for part in entries.partition_responses
            )
        elif request.api in ("init_producer_id", "end_txn"):
            entry.facts.extra["producer_id"] = getattr(body, "producer_id", None)
            entry.facts.extra["epoch"] = getattr(body, "producer_epoch", None)
        elif request.api in ("join_group", "consumer_group_heartbeat"):
            entry.facts.extra["member"] = getattr(body, "member_id", None)
        return body


async def _in_thread(rule: Rule) -> None:
    """Rule calls block (they kill and wait), so they never run on the loop.

    A kill ends the very connection that waits here, and with it this task: the thread itself says when it is done.
    """

    def work() -> None:
        try:
            if rule.call is not None:
                rule.call()
        finally:
            rule.finish()

    await asyncio.get_running_loop().run_in_executor(None, work)


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(4))
        if not 0 <= length <= _MAX_FRAME_BYTES:
            return None
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        return None


async def _write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    if writer.is_closing():
        return
    with contextlib.suppress(ConnectionError, OSError):
        writer.write(_LENGTH.pack(len(frame)))
        writer.write(frame)
        await writer.drain()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not port.isdigit():
        raise UnreachableError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
