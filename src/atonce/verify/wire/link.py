"""One connection of the subject through the proxy: frames both ways, noted in the history, struck by rules."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from atonce.verify.wire.advertised import Addresses, rewrite
from atonce.verify.wire.decode import DECODED, Facts, Request, error_codes, facts, parse_request
from atonce.verify.wire.fabricate import changed_response, failed_response
from atonce.verify.wire.history import Entry, History
from atonce.verify.wire.rules import Action, Rule

_LENGTH = struct.Struct(">i")
_MAX_FRAME_BYTES = 256 << 20
_CUT = (Action.DROP_REQUEST, Action.DELAY, Action.CALL_BEFORE)


class Passage(Protocol):
    """The proxy, as its connections see it."""

    history: History
    positions: dict[tuple[str, int], int]
    adjust: Callable[[Request, Facts], Request] | None

    @property
    def single_node(self) -> bool: ...

    async def passage(self) -> None: ...

    async def listener(self, at: tuple[str, int]) -> tuple[str, int]: ...

    def pick(self, request: Request, found: Facts) -> Rule | None: ...

    def topic_name(self, topic_id: Any) -> str: ...

    def learn(self, request: Request, body: Any) -> None: ...

    def aside(self, work: Coroutine[Any, Any, None]) -> None: ...


class Link:
    """One connection of the subject and the one behind it to the broker."""

    def __init__(
        self,
        proxy: Passage,
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
        while (frame := await read_frame(self.client_reader)) is not None:
            await self.proxy.passage()
            request = parse_request(frame)
            if request is None:
                await write_frame(self.broker, frame)
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
            self.proxy.history.kinds.add(request.api)
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
                self.proxy.aside(self.late(request, entry, rule))
                if rule.call is not None:  # before the connection ends: whoever sent it must not send it again
                    await asyncio.get_running_loop().run_in_executor(None, rule.run_call)
            elif action is Action.CALL_BEFORE:
                await _in_thread(rule)
            else:
                rule.finish()
            return False
        if rule and action is Action.FAIL:
            entry.outcome = "failed"
            await write_frame(self.client, failed_response(request, rule.error))
            rule.finish()
            return True
        if rule and action is Action.STALL:
            await self.stall(entry, rule)
        if rule and action is Action.CALL_BESIDE:
            await _in_thread(rule)
        if entry.facts.acks == 0:
            entry.outcome = "answered"  # the subject asked for no answer and gets none
            await write_frame(self.broker, request.frame)
            if rule and action in (Action.CALL_WITH, Action.CALL_AFTER):
                await _in_thread(rule)
            elif rule and action is not Action.CALL_BESIDE:
                rule.finish("" if action in (Action.STALL, Action.DROP_RESPONSE) else "it waited for no answer")
            return action not in (Action.DROP_RESPONSE, Action.CALL_AFTER)
        self.pending[request.correlation_id] = (request, entry, rule)
        written = await write_frame(self.broker, request.frame)
        if rule and action is Action.STALL:
            rule.finish("" if written else "the broker had closed the connection")
        if rule and action is Action.DUPLICATE:
            rule.answer = await self.ask_aside(request)
            rule.finish("" if rule.answer else "the broker did not answer the second one")
        if rule and action is Action.CALL_WITH:
            await _in_thread(rule)
        return True

    async def stall(self, entry: Entry, rule: Rule) -> None:
        """The subject waits for an answer; what happens meanwhile is the scenario's."""
        if rule.call is not None:
            await asyncio.get_running_loop().run_in_executor(None, rule.run_call)
        while not rule.released:
            await asyncio.sleep(0.01)
        entry.facts.extra["arrived_at"] = time.time()

    async def late(self, request: Request, entry: Entry, rule: Rule) -> None:
        """A request that was on its way while its connection died, and arrives all the same."""
        while not rule.released:
            await asyncio.sleep(0.005)
        with contextlib.suppress(OSError, TimeoutError):
            entry.facts.extra["arrived_at"] = time.time()
            rule.answer = await asyncio.wait_for(self.ask_aside(request), 10)
        if rule.answer is not None:
            self.note(request, entry, rule.answer)
        rule.finish("" if rule.answer is not None else "the broker did not answer it")

    async def ask_aside(self, request: Request) -> bytes | None:
        """The same request once more, on a connection of its own."""
        reader, writer = await asyncio.open_connection(*self.at, limit=1 << 20)
        try:
            await write_frame(writer, request.frame)
            return await read_frame(reader)
        finally:
            writer.close()

    async def responses(self) -> None:
        while (frame := await read_frame(self.broker_reader)) is not None:
            await self.proxy.passage()
            known = self.pending.pop(_LENGTH.unpack_from(frame)[0], None)
            if known is None:
                await write_frame(self.client, frame)
                continue
            request, entry, rule = known
            frame = await self.note_and_rewrite(request, entry, frame)
            if rule and rule.action is Action.DROP_RESPONSE:
                rule.finish()
                return
            if rule and rule.action is Action.CALL_AFTER:
                await _in_thread(rule)
                return
            if rule and rule.action is Action.CHANGE:
                said, frame = frame, changed_response(request, rule, frame)
                rule.finish("" if frame != said else "the answers said the same without it")
            await write_frame(self.client, frame)

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
        if request.api == "fetch" and (request.version < 16 or self.proxy.single_node):
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

    await asyncio.get_running_loop().run_in_executor(None, lambda: rule.finish(rule.run_call()))


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(4))
        if not 0 <= length <= _MAX_FRAME_BYTES:
            return None
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        return None


async def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> bool:
    """False: the other side is gone."""
    if writer.is_closing():
        return False
    with contextlib.suppress(ConnectionError, OSError):
        writer.write(_LENGTH.pack(len(frame)))
        writer.write(frame)
        await writer.drain()
        return True
    return False
