"""`atonce run`: run a pipeline from a YAML file or a Python module until it is stopped or drained."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atonce.cli.parts.foreground import stoppable
from atonce.cli.parts.live import said, shown, starting
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.delivery.metrics import Numbers
    from atonce.pipeline import Pipeline

REMEMBERED = Path(".atonce/pipelines")
"""Name → where the pipeline is defined, so that `atonce reset NAME` finds it again."""


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    pipeline: Annotated[str, typer.Argument(help="A YAML file, or module:attribute of a Pipeline.")],
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Deliver what is there now, then return when it is visible.")
    ] = False,
    guarantee: Annotated[
        str | None, typer.Option(help="none, at-most-once, at-least-once or effectively-once.")
    ] = None,
    servers: Annotated[str | None, typer.Option(help="Kafka servers, HOST:PORT,… for whatever names none.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, e.g. local[2] or spark://HOST:PORT.")] = None,
    metrics: Annotated[str | None, typer.Option(help="HOST:PORT for metrics in Prometheus format.")] = None,
) -> None:
    """Run a pipeline. Ctrl-C or SIGTERM finishes or aborts the running batch and ends with exit code 0.

    Examples:

      atonce run orders.yaml

      atonce run orders.yaml --available-now --guarantee at-least-once

      atonce run shop.pipelines:orders --servers 127.0.0.1:9092 --metrics 127.0.0.1:9404
    """
    from atonce.delivery.metrics import Numbers, Several

    # Lost connections are ours to tell; PySpark may give the root logger a handler that would show each of them.
    logging.getLogger("kafka").propagate = False
    chosen, settings = pipeline_named(pipeline)
    chosen = overridden(chosen, guarantee, servers, master)
    numbers = Numbers(chosen.name, chosen.level.value)
    chosen = replace(chosen, observer=Several(chosen.observer, numbers), say=said(chosen.name))
    address = metrics or settings.get("metrics")
    server = _served(numbers, str(address)) if address else None
    try:
        # While Spark starts a signal simply ends it; once a batch may be running, the run is asked to stop instead.
        with stoppable(), contextlib.ExitStack() as stack:
            with starting():
                running = stack.enter_context(chosen.running(available_now))
                stack.enter_context(stopped_by_signals(running))
                _remember(chosen.name, pipeline)
                running.start()
            with shown(numbers, chosen.name, running.job.source):
                running.wait()
    finally:
        if server is not None:
            server.shutdown()


def _served(numbers: Numbers, address: str) -> Any:
    from atonce.delivery.metrics import serve

    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise UsageError(f"--metrics wants HOST:PORT, as in 127.0.0.1:9404, got {address!r}")
    try:
        return serve(numbers, address)
    except (OSError, OverflowError) as error:
        raise UsageError(f"metrics cannot be served on {address}: {error}. Next: choose another port.") from None


def pipeline_named(target: str) -> tuple[Pipeline, dict[str, Any]]:
    from atonce.config import load, load_attribute

    if target.endswith((".yaml", ".yml")) or ":" not in target:
        return load(target)
    return load_attribute(target), {}


def overridden(chosen: Pipeline, guarantee: str | None, servers: str | None, master: str | None) -> Pipeline:
    if guarantee:
        chosen = replace(chosen, guarantee=guarantee)
    if master:
        chosen = replace(chosen, master=master)
    return chosen.at(servers) if servers else chosen


def _remember(name: str, target: str) -> None:
    REMEMBERED.mkdir(parents=True, exist_ok=True)
    (REMEMBERED / name).write_text(f"{Path(target).absolute() if Path(target).exists() else target}\n")


def stopped_by_signals(running: Any) -> Any:
    from atonce.pipeline import stopped_by_signals as listen

    return listen(running)
