"""The broker as a process: starts in order, says when it answers, stops cleanly on SIGTERM and Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from atonce.broker.address import (
    DataLock,
    is_loopback,
    parse_address,
    remove_address,
    show_address,
    write_address,
)
from atonce.broker.broker import BrokerState
from atonce.broker.config import Value
from atonce.broker.listeners import Listener, Protocol, parse_listeners
from atonce.broker.metrics import Metrics, serve_metrics
from atonce.broker.open_files import OpenFiles, raise_limit
from atonce.broker.server import Limits, Server
from atonce.broker.settings import Settings
from atonce.broker.tls import tls_context
from atonce.errors import UsageError

_log = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:9092"
_HARM = "read and write everything"


@dataclass(frozen=True, slots=True)
class Options:
    data: Path
    listen: str | None  # HOST:PORT, short for one PLAINTEXT listener; None: the setting `listeners`, or the default
    settings: Mapping[str, Value]
    insecure: bool = False
    metrics: str | None = None


def run(options: Options, ready: Callable[[str], None]) -> None:
    """Serve until a signal comes. `ready` is called with HOST:PORT once the broker answers."""
    listeners = listeners_of(options)
    for listener in listeners:
        if not _asks_who_it_is(options, listener):
            _check_reach(options, "--listen", show_address(listener.host or "0.0.0.0", listener.port), _HARM)
    if options.metrics is not None:
        _check_reach(options, "--metrics", options.metrics, "see what is going on here")
    os.umask(0o077)  # what is kept here is nobody else's business
    lock = DataLock(options.data)
    try:
        # Requests make no reference cycles worth looking for often; the young generation would be scanned all day.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, listeners, ready))
    finally:
        remove_address(options.data)
        lock.release()


def listeners_of(options: Options) -> list[Listener]:
    """From `listeners`, or `--listen` in its place."""
    names = ("listeners", "advertised.listeners", "listener.security.protocol.map")
    values = {name: str(options.settings[name]) for name in names if name in options.settings}
    if options.listen is not None and "listeners" in values:
        raise UsageError("--listen and --set listeners=… were both given; keep one of them")
    if "listeners" not in values:
        host, port = parse_address(options.listen or DEFAULT_LISTEN)
        values["listeners"] = f"PLAINTEXT://{show_address(host, port)}"
    return parse_listeners(values)


def _asks_who_it_is(options: Options, listener: Listener) -> bool:
    """Whether nobody comes in who has not proven who he is, over a wire that nobody else reads."""
    certificates = options.settings.get("ssl.client.auth") == "required"
    return listener.protocol.is_encrypted and (listener.protocol.asks_for_a_user or certificates)


def _check_reach(options: Options, option: str, address: str, harm: str) -> None:
    host, _ = parse_address(address)
    if not options.insecure and not is_loopback(host):
        raise UsageError(
            f"{option} {address}: anyone who reaches this address could {harm}, as it is not asked for a password or "
            "certificate over TLS. Listen on 127.0.0.1, or use --secure, or add --insecure if the network is trusted."
        )


async def _serve(options: Options, listeners: Sequence[Listener], ready: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = Settings(static=dict(options.settings))
    contexts = {
        listener.name: tls_context(settings, asks_for_a_user=listener.protocol.asks_for_a_user)
        for listener in listeners
        if listener.protocol.is_encrypted
    }
    metrics = Metrics()
    shared = OpenFiles.shared_out(raise_limit())
    broker = BrokerState(options.data, settings, metrics, shared.files)
    server = Server(broker, Limits.of(settings, most_connections=shared.connections), metrics)
    try:
        await broker.start()
        backlog = settings.number("socket.listen.backlog.size")
        bound = [await _listen(server, listener, backlog, contexts.get(listener.name)) for listener in listeners]
        if options.metrics is not None:
            await _listen_for_metrics(options.metrics, broker)
        # Who finds us by our directory knows no password: a listener that asks for none is his, if there is one.
        plain = next((one for one in bound if one.protocol is Protocol.PLAINTEXT), bound[0])
        write_address(options.data, _name_here(plain), plain.port)
        _log.info("listening on %s", ", ".join(str(one) for one in bound))
        ready(show_address(_name_here(bound[0]), bound[0].port))
        await stop.wait()
        _log.info("stopping")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
        remove_address(options.data)
        broker.stop_waiting()
        await server.stop()
        await broker.stop()


def _name_here(listener: Listener) -> str:
    """For those on this machine: the name that was given, unless it stands for every address."""
    return "localhost" if listener.listens_everywhere else listener.host


async def _listen(server: Server, listener: Listener, backlog: int, tls: ssl.SSLContext | None) -> Listener:
    try:
        return await server.listen(listener, backlog, tls)
    except OSError as error:
        raise UsageError(f"{listener}: cannot listen there: {error.strerror or error}") from error


async def _listen_for_metrics(listen: str, broker: BrokerState) -> None:
    host, port = parse_address(listen)
    try:
        _, at_host, at_port = await serve_metrics(
            host, port, lambda: "\n".join(broker.metrics.lines(broker.gauges())) + "\n"
        )
    except OSError as error:
        raise UsageError(f"--metrics {listen}: {error.strerror or error}") from error
    _log.info("metrics on http://%s/metrics", show_address(at_host, at_port))
