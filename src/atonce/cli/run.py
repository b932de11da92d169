"""`atonce run`: run pipelines from YAML files or Python modules until they are stopped or drained."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atonce.cli.parts.live import said, shown, starting
from atonce.errors import UsageError
from atonce.spark.versions import spark_version
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
    start: Annotated[
        str | None,
        typer.Option("--from", help="Backfill: where it begins, as for `reset --to`. Default: earliest."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Backfill: where it ends, not included; `first`: where the pipeline itself began."),
    ] = None,
    name: Annotated[str | None, typer.Option("--as", help="Backfill: its own name.")] = None,
    into: Annotated[str | None, typer.Option(help="Backfill: another table or topic than the pipeline's.")] = None,
    traces: Annotated[
        str | None, typer.Option(help="http://HOST:4318, an OpenTelemetry collector: a span for each batch.")
    ] = None,
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

      atonce run orders.yaml --from 2026-01-01T00:00:00Z --until first --as orders-january
    """
    spark_version()
    with stopped_by_signals() as stops, contextlib.ExitStack() as stack:
        first = stack.enter_context(starting(pipelines))
        # Lost connections are ours to tell; PySpark may give the root logger a handler that would show each of them.
        logging.getLogger("kafka").propagate = False
        changes = [*_backfill(pipelines, start, until, name, into), *_traced(traces, stack)]
        together, address = _together(pipelines, guarantee, servers, master, available_now, stop_together, changes)
        if metrics or address:
            server = _served(str(metrics or address), "--metrics" if metrics else "metrics", together.numbers)
            stack.callback(server.shutdown)
        together.start(stops)
        first.close()
        with shown(together.started):
            together.wait()


def _together(
    targets: list[str],
    guarantee: str | None,
    servers: str | None,
    master: str | None,
    now: bool,
    stop_together: bool,
    changes: Sequence[Callable[[Pipeline], Pipeline]],
) -> tuple[Together, str | None]:
    """All of them, and where the first that says so wants its metrics."""
    from atonce.several import Together, refuse_together

    chosen, address = [], None
    for target in targets:
        pipeline, settings = pipeline_named(target)
        pipeline = overridden(pipeline, guarantee, servers, master)
        for change in changes:
            pipeline = change(pipeline)
        chosen.append(replace(pipeline, say=said(pipeline.name)))
        address = address or settings.get("metrics")
    refuse_together(chosen)
    defined = {each.name: target for each, target in zip(chosen, targets, strict=True)}

    def remember(name: str) -> None:
        if next(each for each in chosen if each.name == name).span is None:  # a backfill's file defines another name
            _remember(name, defined[name])

    return Together(chosen, now, stop_together, remember), address


def _backfill(
    targets: list[str], start: str | None, until: str | None, name: str | None, into: str | None
) -> list[Callable[[Pipeline], Pipeline]]:
    """What turns the pipeline into a part of it."""
    if start is None and until is None and name is None and into is None:
        return []
    if name is None or until is None:
        raise UsageError("a backfill needs --until, where it ends, and --as, a name of its own; --from is earliest")
    if len(targets) > 1:
        raise UsageError(f"a backfill is of one pipeline, got {', '.join(targets)}")
    return [lambda pipeline: pipeline.backfill(name, start=start or "earliest", until=until, into=into)]


def _traced(address: str | None, stack: contextlib.ExitStack) -> list[Callable[[Pipeline], Pipeline]]:
    if address is None:
        return []
    from atonce.delivery.metrics import Several
    from atonce.delivery.traces import sent_to

    traces, provider = sent_to(address)
    stack.callback(provider.shutdown)
    stack.callback(traces.close)
    return [lambda pipeline: replace(pipeline, observer=Several(pipeline.observer, traces))]


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
