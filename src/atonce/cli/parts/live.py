"""What `atonce run` shows while it runs: a live table on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atonce.delivery.abilities import TellsLag
    from atonce.delivery.metrics import Numbers, Snapshot

_LAG_EVERY_S = 2.0
_REFRESH_S = 0.25
_LOG_EVERY_S = 1.0
_NUMBERS_WIDTH = 16 + 5 * 7 + 8
"""Everything beside the pipeline's name, at its widest."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Starting Spark takes seconds: on a terminal, say so meanwhile."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    # A descriptor of its own: while Spark starts, standard error is filtered line by line, and a spinner has no lines.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as screen:
        with Console(file=screen, force_terminal=True).status("starting Spark, then claiming the pipeline …"):
            yield


@contextlib.contextmanager
def shown(numbers: Numbers, name: str, source: Any) -> Iterator[None]:
    """`source`: the pipeline's input, which may tell how much of it waits."""
    from atonce.delivery.abilities import TellsLag

    ended, done = threading.Event(), threading.Event()
    display = threading.Thread(target=_live if sys.stderr.isatty() else _logged, args=(numbers, done), daemon=True)
    lag = threading.Thread(target=_follow_lag, args=(numbers, name, source, ended), daemon=True)
    display.start()
    if isinstance(source, TellsLag):
        lag.start()
    try:
        yield
    finally:
        ended.set()
        if lag.is_alive():
            lag.join(3)  # the last line shows the lag at the end
        done.set()
        display.join(5)


def table(now: Snapshot, width: int) -> Any:
    """The numbers as a table that fits 80 columns; below it what is being waited for, if anything."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    gap = 2 if width >= 100 else 1
    name_width = max(8, width - _NUMBERS_WIDTH - 7 * gap)
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0))
    made.add_column("pipeline", style="bold", max_width=name_width, no_wrap=True, overflow="ellipsis")
    made.add_column("level", no_wrap=True, style="cyan")
    for name in ("batch", "rows", "rows/s", "lag", "commits", "restarts"):
        made.add_column(name, justify="right", no_wrap=True, min_width=7)  # so that nothing moves as numbers grow
    made.add_row(
        now.pipeline,
        now.level,
        "–" if now.batch is None else str(now.batch),
        _short(now.rows),
        _short(round(now.rows_per_s)),
        "–" if now.lag is None else _short(now.lag),
        str(now.commits),
        Text(str(now.restarts), style="yellow" if now.restarts else ""),
    )
    if not now.trouble:
        return made
    words = Text(f"waiting: {' '.join(now.trouble.split())}", style="yellow", no_wrap=True, overflow="ellipsis")
    words.truncate(width - 1, overflow="ellipsis")
    return Group(made, words)


def _short(number: int) -> str:
    """Seven characters at most: 999,999 in full, then 1.23M."""
    if number < 1_000_000:
        return f"{number:,}"
    return f"{number / 1e6:.2f}M" if number < 1_000_000_000 else f"{number / 1e9:.2f}G"


def _live(numbers: Numbers, done: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(table(numbers.snapshot(), console.width), console=console, auto_refresh=False) as live:
        ended = False
        while not ended:
            ended = done.wait(_REFRESH_S)
            live.update(table(numbers.snapshot(), console.width), refresh=True)


def _logged(numbers: Numbers, done: threading.Event) -> None:
    said: tuple[int, int] | None = None
    while True:
        ended = done.wait(_LOG_EVERY_S)
        now = numbers.snapshot()
        if (now.batches, now.retries) != said or ended:
            said = (now.batches, now.retries)
            print(log_line(now), file=sys.stderr, flush=True)
        if ended:
            return


def said(pipeline: str) -> Callable[[str], None]:
    """Where words of the pipeline go: as they are on a terminal, as one more log line elsewhere."""

    def say(text: str) -> None:
        line = f"atonce: {text}" if sys.stderr.isatty() else json.dumps({**_now(), "pipeline": pipeline, "says": text})
        print(line, file=sys.stderr, flush=True)

    return say


def log_line(now: Snapshot) -> str:
    facts = {key: value for key, value in asdict(now).items() if value not in (None, "", {})}
    facts["rows_per_s"] = round(now.rows_per_s, 1)
    facts["last_batch_s"] = round(now.last_batch_s, 3)
    return json.dumps({**_now(), **facts})


def _now() -> dict[str, str]:
    return {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def _follow_lag(numbers: Numbers, name: str, source: TellsLag, done: threading.Event) -> None:
    from atonce.errors import AtOnceError

    try:
        with source.lag(name) as lag:
            last = False
            while not last:
                last = done.wait(_LAG_EVERY_S)
                with contextlib.suppress(AtOnceError):
                    numbers.lag = lag()
    except AtOnceError:
        return  # the display goes on without the lag; the pipeline itself tells when the cluster is gone
