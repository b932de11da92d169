"""`atonce run`: run a pipeline from a YAML file or a Python module until it is stopped or drained."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from atonce.engine.metrics import Numbers, Snapshot
    from atonce.pipeline import Pipeline

_LAG_EVERY_S = 2.0
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
    from atonce.engine.metrics import Numbers, Several, serve

    chosen, settings = pipeline_named(pipeline)
    chosen = overridden(chosen, guarantee, servers, master)
    numbers = Numbers(chosen.name, chosen.level.value)
    chosen = replace(chosen, observer=Several(chosen.observer, numbers), say=_say)
    address = metrics or settings.get("metrics")
    server = serve(numbers, str(address)) if address else None
    try:
        with chosen.running(available_now) as running, stopped_by_signals(running):
            _remember(chosen.name, pipeline)
            running.start()
            with _shown(chosen, numbers, running.job.input_servers, running.job.input_config):
                running.wait()
    finally:
        if server is not None:
            server.shutdown()


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


@contextlib.contextmanager
def _shown(pipeline: Pipeline, numbers: Numbers, servers: str | None, config: dict[str, str]) -> Iterator[None]:
    """A live line on a terminal, JSON log lines elsewhere."""
    ended, shown = threading.Event(), threading.Event()
    target = _live if sys.stderr.isatty() else _logged
    display = threading.Thread(target=target, args=(numbers, shown), daemon=True)
    display.start()
    following = (numbers, pipeline.name, servers or "", config, ended)
    lag = threading.Thread(target=_follow_lag, args=following, daemon=True)
    if servers:
        lag.start()
    try:
        yield
    finally:
        ended.set()
        if servers:
            lag.join(3)  # the last line shows the lag at the end
        shown.set()
        display.join(5)


def _live(numbers: Numbers, done: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(_line(numbers.snapshot()), console=console, refresh_per_second=4, transient=False) as live:
        while not done.wait(0.25):
            live.update(_line(numbers.snapshot()))
        live.update(_line(numbers.snapshot()))


def _line(now: Snapshot) -> str:
    lag = "-" if now.lag is None else f"{now.lag:,}"
    batch = "-" if now.batch is None else str(now.batch)
    text = (
        f"{now.pipeline}  batch {batch}  {now.rows:,} rows  {now.rows_per_s:,.0f} rows/s  lag {lag}  "
        f"commits {now.commits}  restarts {now.restarts}  {now.level}"
    )
    return f"{text}  waiting: {now.trouble[:80]}" if now.trouble else text


def _logged(numbers: Numbers, done: threading.Event) -> None:
    said: tuple[int, int] | None = None
    while True:
        ended = done.wait(1.0)
        now = numbers.snapshot()
        if (now.batches, now.retries) != said or ended:
            said = (now.batches, now.retries)
            facts = {key: value for key, value in asdict(now).items() if value not in (None, "")}
            facts["rows_per_s"] = round(now.rows_per_s, 1)
            facts["last_batch_s"] = round(now.last_batch_s, 3)
            print(
                json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}),
                file=sys.stderr,
                flush=True,
            )
        if ended:
            return


def _follow_lag(numbers: Numbers, group: str, servers: str, config: dict[str, str], done: threading.Event) -> None:
    from atonce.client.admin import group_lag
    from atonce.client.cluster import Cluster
    from atonce.errors import AtOnceError

    try:
        with Cluster(servers, config) as cluster:
            last = False
            while not last:
                last = done.wait(_LAG_EVERY_S)
                with contextlib.suppress(AtOnceError):
                    numbers.lag = sum(each.lag for each in group_lag(cluster, group))
    except AtOnceError:
        return  # the display goes on without the lag; the pipeline itself tells when the cluster is gone


def _say(text: str) -> None:
    print(f"atonce: {text}", file=sys.stderr, flush=True)
