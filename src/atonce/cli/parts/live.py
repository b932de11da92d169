"""What `atonce run` shows while it runs: a live table on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atonce.delivery.abilities import TellsLag
    from atonce.delivery.metrics import Numbers, Snapshot
    from atonce.delivery.started import Started

_LAG_EVERY_S = 2.0
_LAG_KNOWN_WITHIN_S = 3.0
_LAG_LOOK_S = 0.2
_REFRESH_S = 0.25
_LOG_EVERY_S = 1.0
_NUMBERS_WIDTH = 16 + 5 * 7 + 8
"""Everything beside the pipeline's name, at its widest."""


@contextlib.contextmanager
def starting(pipelines: Sequence[str]) -> Iterator[contextlib.ExitStack]:
    """Starting Spark takes seconds: say so at once. What it gives is closed when there is more to show."""
    words = f"starting Spark for {', '.join(pipelines)} …"
    with contextlib.ExitStack() as shown:
        if sys.stderr.isatty():
            from rich.console import Console

            # A descriptor of its own: while Spark starts, standard error is filtered line by line, and a spinner has
            # no lines.
            screen = shown.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w"))
            shown.enter_context(Console(file=screen, force_terminal=True).status(words))
        else:
            print(json.dumps({**_now(), "says": words}, ensure_ascii=False), file=sys.stderr, flush=True)
        yield shown


@contextlib.contextmanager
def shown(pipelines: Sequence[Started]) -> Iterator[None]:
    """How they go, until they have ended; with how much of their input waits, where it tells."""
    from atonce.delivery.abilities import TellsLag

    ended, done = threading.Event(), threading.Event()
    known = {each.name: threading.Event() for each in pipelines}
    numbers = [each.numbers for each in pipelines]
    if sys.stderr.isatty():
        displays = [threading.Thread(target=_live, args=(numbers, done), daemon=True)]
    else:
        displays = [
            threading.Thread(target=_logged, args=(each, known[each.pipeline], done), daemon=True) for each in numbers
        ]
    lags = [
        threading.Thread(target=_follow_lag, args=(each.numbers, each.source, known[each.name], ended), daemon=True)
        for each in pipelines
        if isinstance(each.source, TellsLag)
    ]
    for each in pipelines:
        if not isinstance(each.source, TellsLag):
            known[each.name].set()
    for thread in (*displays, *lags):
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in lags:
            thread.join(3)  # the last line shows the lag at the end
        done.set()
        for thread in displays:
            thread.join(5)


def table(pipelines: Sequence[Snapshot], width: int) -> Any:
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
    troubles = []
    for now in pipelines:
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
        if now.dead_letters:
            whose = f"{now.pipeline} " if len(pipelines) > 1 else ""
            troubles.append(Text(f"{whose}dead letters: {now.dead_letters:,}", style="yellow", no_wrap=True))
        if now.trouble:
            whose = f"{now.pipeline} " if len(pipelines) > 1 else ""
            doubt = "in doubt, " if now.in_doubt_since is not None else ""
            words = Text(f"{whose}{doubt}waiting: {' '.join(now.trouble.split())}", style="yellow", no_wrap=True)
            words.truncate(width - 1, overflow="ellipsis")
            troubles.append(words)
    return Group(made, *troubles) if troubles else made


def _short(number: int) -> str:
    """Seven characters at most: 999,999 in full, then 1.23M."""
    if number < 1_000_000:
        return f"{number:,}"
    return f"{number / 1e6:.2f}M" if number < 1_000_000_000 else f"{number / 1e9:.2f}G"


def _live(numbers: Sequence[Numbers], done: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)

    def painted() -> Any:
        return table([each.snapshot() for each in numbers], console.width)

    with Live(painted(), console=console, auto_refresh=False) as live:
        ended = False
        while not ended:
            ended = done.wait(_REFRESH_S)
            live.update(painted(), refresh=True)


def _logged(numbers: Numbers, known: threading.Event, done: threading.Event) -> None:
    """A line for each batch, one when something is waited for, and one at the end."""
    known.wait(_LAG_KNOWN_WITHIN_S)  # the first line shall not be the only one without a lag
    retries = 0
    while True:
        ended = done.wait(_LOG_EVERY_S)
        if numbers.finished and not ended:
            ended = _lag_is_counted(numbers, done)
        while numbers.finished:
            batch = numbers.finished.popleft()
            print(log_line(replace(batch, lag=numbers.lag)), file=sys.stderr, flush=True)
        now = numbers.snapshot()
        if now.retries != retries or ended:
            retries = now.retries
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


def _lag_is_counted(numbers: Numbers, done: threading.Event) -> bool:
    """Waits a moment until the lag is that after the last batch, where it is counted; whether it is over."""
    until = time.monotonic() + _LAG_KNOWN_WITHIN_S
    while numbers.lag_counted_at not in (None, numbers.positions) and time.monotonic() < until:
        if done.wait(_LAG_LOOK_S):
            return True
    return done.is_set()


def _moved_or_later(numbers: Numbers, done: threading.Event) -> bool:
    """Until a batch has moved the pipeline, else for a while; whether it is over."""
    until = time.monotonic() + _LAG_EVERY_S
    while not (ended := done.wait(_LAG_LOOK_S)):
        if numbers.positions is not numbers.lag_counted_at or time.monotonic() >= until:
            break
    return ended


def _follow_lag(numbers: Numbers, source: TellsLag, known: threading.Event, done: threading.Event) -> None:
    from atonce.errors import AtOnceError

    try:
        with source.lag() as lag:
            last = False
            while True:
                positions = numbers.positions
                if positions is not None:
                    with contextlib.suppress(AtOnceError):
                        numbers.lag = lag(positions)
                    numbers.lag_counted_at = positions
                    known.set()
                if last:
                    return
                last = _moved_or_later(numbers, done)
    except AtOnceError:
        return  # the display goes on without the lag; the pipeline itself tells when the cluster is gone
    finally:
        known.set()
