"""`atonce run`: run pipelines from YAML files or Python modules until they are stopped or drained."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atonce.cli.parts.live import said, shown, starting
from atonce.errors import UsageError
from atonce.stopping import stopped_by_signals

if TYPE_CHECKING:
    from atonce.delivery.metrics import Numbers
    from atonce.pipeline import Pipeline
    from atonce.several import Together

REMEMBERED = Path(".atonce/pipelines")
"""Name → where the pipeline is defined, so that `atonce reset NAME` finds it again."""


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    pipelines: Annotated[
        list[str], typer.Argument(metavar="PIPELINE...", help="YAML files, or module:attribute of Pipelines.")
    ],
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Deliver what is there now, then return when it is visible.")
    ] = False,
    guarantee: Annotated[
        str | None, typer.Option(help="none, at-most-once, at-least-once or effectively-once.")
    ] = None,
    servers: Annotated[str | None, typer.Option(help="Kafka servers, HOST:PORT,… for whatever names none.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, e.g. local[2] or spark://HOST:PORT.")] = None,
    metrics: Annotated[str | None, typer.Option(help="HOST:PORT for metrics in Prometheus format.")] = None,
    stop_together: Annotated[
        bool, typer.Option("--stop-together", help="Of several pipelines: when one fails, stop the others.")
    ] = False,
) -> None:
    """Run one or more pipelines, in one process and one Spark session. Ctrl-C or SIGTERM finishes or aborts the running
    batch and ends with exit code 0. One that fails leaves the others running.

    Examples:

      atonce run orders.yaml

      atonce run orders.yaml --available-now --guarantee at-least-once

      atonce run orders.yaml payments.yaml --metrics 127.0.0.1:9404

      atonce run shop.pipelines:orders --servers 127.0.0.1:9092
    """
    with stopped_by_signals() as stops, contextlib.ExitStack() as stack:
        first = stack.enter_context(starting(pipelines))
        # Lost connections are ours to tell; PySpark may give the root logger a handler that would show each of them.
        logging.getLogger("kafka").propagate = False
        together, address = _together(pipelines, guarantee, servers, master, available_now, stop_together)
        if metrics or address:
            server = _served(str(metrics or address), "--metrics" if metrics else "metrics", together.numbers)
            stack.callback(server.shutdown)
        together.start(stops)
        first.close()
        with shown(together.started):
            together.wait()


def _together(
    targets: list[str], guarantee: str | None, servers: str | None, master: str | None, now: bool, stop_together: bool
) -> tuple[Together, str | None]:
    """All of them, and where the first that says so wants its metrics."""
    from atonce.several import Together, refuse_together

    chosen, address = [], None
    for target in targets:
        pipeline, settings = pipeline_named(target)
        pipeline = overridden(pipeline, guarantee, servers, master)
        chosen.append(replace(pipeline, say=said(pipeline.name)))
        address = address or settings.get("metrics")
    refuse_together(chosen)
    defined = {each.name: target for each, target in zip(chosen, targets, strict=True)}
    return Together(chosen, now, stop_together, lambda name: _remember(name, defined[name])), address


def _served(address: str, said_by: str, numbers: Sequence[Numbers]) -> Any:
    from atonce.delivery.metrics import serve

    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise UsageError(f"{said_by} wants HOST:PORT, as in 127.0.0.1:9404, got {address!r}")
    try:
        return serve(address, *numbers)
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
