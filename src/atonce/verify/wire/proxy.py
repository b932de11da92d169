"""A Kafka-aware TCP proxy between the subject and the broker, in a thread of its own.

One listener per broker node. It reads the header of every request and as much of the body as the rules need, rewrites
the addresses that brokers advertise so that all traffic comes through here, and applies one-shot rules (rules.py).
Record data passes through as the bytes it came in.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from atonce.errors import UnreachableError
from atonce.verify.wire.advertised import learn_topics
from atonce.verify.wire.decode import Facts, Request
from atonce.verify.wire.history import History
from atonce.verify.wire.link import Link
from atonce.verify.wire.rules import Rule, refuse_collision


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
        self._links: set[Link] = set()
        self._aside: set[asyncio.Task[None]] = set()
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
        """`InvariantError` where a rule is there already that would strike the same request."""
        refuse_collision(rule, self._rules)
        self._rules.append(rule)
        return rule

    def collides(self, rule: Rule) -> bool:
        return any(not other.spent and rule.collides(other) for other in self._rules)

    def without_effect(self) -> list[Rule]:
        """Rules of this page whose request never came, or that changed nothing when it did."""
        return [rule for rule in self._rules if not rule.acted and not rule.helps]

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
        link = Link(self, self._next, at, (reader, writer), (up_reader, up_writer))
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

    @property
    def single_node(self) -> bool:
        return len(self._listeners) == 1

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on although the connection that began it is gone."""
        task = self._loop.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not port.isdigit():
        raise UnreachableError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
