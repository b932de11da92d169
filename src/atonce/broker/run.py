"""The broker as a process: starts in order, says when it answers, stops cleanly on SIGTERM and Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Mapping
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
from atonce.broker.metrics import Metrics, serve_metrics
from atonce.broker.server import Limits, Server
from atonce.broker.settings import Settings
from atonce.errors import UsageError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    data: Path
    listen: str
    settings: Mapping[str, Value]
    insecure: bool = False
    metrics: str | None = None


def run(options: Options, ready: Callable[[str], None]) -> None:
    """Serve until a signal comes. `ready` is called with HOST:PORT once the broker answers."""
    _check_reach(options, "--listen", options.listen, "read and write everything")
    if options.metrics is not None:
        _check_reach(options, "--metrics", options.metrics, "see what is going on here")
    lock = DataLock(options.data)
    try:
        # Requests make no reference cycles worth looking for often; the young generation would be scanned all day.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, ready))
    finally:
        remove_address(options.data)
        lock.release()


def _check_reach(options: Options, option: str, address: str, harm: str) -> None:
    host, _ = parse_address(address)
    if not options.insecure and not is_loopback(host):
        raise UsageError(
            f"{option} {address}: anyone who reaches this address could {harm}, as there is neither TLS nor a "
            "password. Listen on 127.0.0.1, or add --insecure if the network is trusted."
        )


async def _serve(options: Options, ready: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = Settings(static=dict(options.settings))
    metrics = Metrics()
    broker = BrokerState(options.data, settings, metrics)
    server = Server(broker, Limits.of(settings), metrics)
    try:
        await broker.start()
        host, port = parse_address(options.listen)
        try:
            bound_host, broker.port = await server.listen(host, port, settings.number("socket.listen.backlog.size"))
        except OSError as error:
            raise UsageError(f"--listen {options.listen}: {error.strerror or error}") from error
        # What clients are told to connect to: the name that was given, unless it stands for every address.
        broker.host = "localhost" if host in ("0.0.0.0", "::") else host
        if options.metrics is not None:
            await _listen_for_metrics(options.metrics, broker)
        write_address(options.data, broker.host, broker.port)
        _log.info("listening on %s", show_address(bound_host, broker.port))
        ready(show_address(broker.host, broker.port))
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


async def _listen_for_metrics(listen: str, broker: BrokerState) -> None:
    host, port = parse_address(listen)
    try:
        _, at_host, at_port = await serve_metrics(
            host, port, lambda: "\n".join(broker.metrics.lines(broker.gauges())) + "\n"
        )
    except OSError as error:
        raise UsageError(f"--metrics {listen}: {error.strerror or error}") from error
    _log.info("metrics on http://%s/metrics", show_address(at_host, at_port))
