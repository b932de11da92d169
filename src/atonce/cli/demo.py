"""`atonce demo`: see a pipeline survive a crash, and the weaker levels fail as they must."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atonce.cli.parts.foreground import stoppable
from atonce.cli.parts.screen import JsonOption, console, print_json
from atonce.errors import UsageError
from atonce.spark.versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atonce.demo.scenario import Result


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    orders: Annotated[int, typer.Option(min=1200, max=1_000_000, help="How many orders to send.")] = 2_400,
    html: Annotated[Path | None, typer.Option(help="Write a report page here.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the picture (SVG) here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run one pipeline under each of the four guarantees, kill it at the worst moments, and count what is left.

    Starts an embedded broker and Spark, publishes orders from a file, and processes them into SQLite. Everything it
    makes goes away again. Exit code 1 if a level did not show what it must.

    Examples:

      atonce demo

      atonce demo --html demo.html
    """
    for file in (html, picture):
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"{file} cannot be written: {file.absolute().parent} is not a directory")
    spark_version()
    results: list[Result] = []
    done = False
    with stoppable():
        results = _run(orders, quiet=as_json)
        done = True
    if not done:
        raise typer.Exit(0)
    from atonce.demo import picture as draw

    if html is not None:
        html.write_text(draw.page(results))
    if picture is not None:
        picture.write_text(draw.svg(results))
    if as_json:
        print_json(results)
    else:
        _show(results, html)
    if not all(result.as_promised for result in results):
        raise typer.Exit(1)


def _run(orders: int, quiet: bool) -> list[Result]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from atonce.broker.embedded import Broker
    from atonce.demo.scenario import Scenario
    from atonce.guarantee import Guarantee
    from atonce.local.scratch import scratch_directory

    scratch = scratch_directory("demo")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    screen = Console(stderr=True)
    try:
        with Progress(*columns, console=screen, disable=quiet or not screen.is_terminal) as bar:
            job = bar.add_task("starting the embedded broker", total=len(Guarantee) + 2)

            def keep(text: str) -> None:
                """Stays on the screen."""
                if not quiet:
                    stamp = "  " if screen.is_terminal else f"{time.strftime('%H:%M:%S')} "
                    bar.console.print(f"{stamp}{text}", highlight=False, soft_wrap=True)

            def say(text: str) -> None:
                """What happens now; on a terminal only kills stay."""
                bar.update(job, description=text)
                if "SIGKILL" in text or not screen.is_terminal:
                    keep(text)

            with Broker(data=scratch / "broker") as broker:
                bar.advance(job)
                say(f"publishing {orders:,} orders from a file to Kafka on {broker.servers}")
                scenario = Scenario(scratch, broker.servers, orders, say)
                scenario.publish()
                bar.advance(job)
                results = []
                for result in scenario.levels():
                    results.append(result)
                    bar.advance(job)
                    counted = f"{result.delivered:,} delivered, {result.lost:,} lost, {result.duplicated:,} duplicated"
                    keep(f"{result.guarantee.value}: {counted}")
                bar.update(job, description="done")
                return results
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _show(results: Sequence[Result], html: Path | None) -> None:
    from rich.table import Table

    from atonce.demo.scenario import WHY
    from atonce.guarantee import BOUNDARY

    table = Table(title="The same pipeline, killed twice between its two writes and recovered", title_justify="left")
    for name in ("level", "sent", "delivered", "lost", "duplicated"):
        table.add_column(name, justify="left" if name == "level" else "right")
    for result in results:
        good, bad = "[green]0[/green]", "[red]{:,}[/red]"
        table.add_row(
            result.guarantee.value,
            f"{result.sent:,}",
            f"{result.delivered:,}",
            bad.format(result.lost) if result.lost else good,
            bad.format(result.duplicated) if result.duplicated else good,
        )
    screen = console()
    screen.print(table)
    for result in results:
        screen.print(f"  [bold]{result.guarantee.value}[/]: {WHY[result.guarantee]}", soft_wrap=True)
    for result in results:
        if not result.as_promised:
            screen.print(f"[red]{result.guarantee.value} did not show what it must: this is an internal error[/red]")
    screen.print(f"\n{BOUNDARY}\n")
    if html is not None:
        screen.print(f"Report page: {html}\n")
    screen.print(_what_next(), soft_wrap=True)


def _what_next() -> str:
    """Commands that can be copied as they are printed, from where the user stands."""
    beside = Path(sys.executable).parent
    found = shutil.which("atonce")
    on_path = found is not None and Path(found).parent.samefile(beside)
    prefix = "" if on_path else f"{_from_here(beside)}/"
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "examples" / "copy.yaml").exists():
        return f"What to try next: {prefix}atonce --help"
    examples, docs = _from_here(checkout / "examples"), _from_here(checkout / "docs")
    rows = [
        (f"{prefix}atonce explain {examples}/copy.yaml", "which guarantee a pipeline can have, and why"),
        (f"{prefix}atonce verify {examples}/copy.yaml", "put it through real failures, one by one"),
        (f"{prefix}python {examples}/orders.py", "files, Kafka, Spark and PostgreSQL together"),
        (f"{docs}/tutorial.md", "the same by hand, step by step"),
    ]
    width = max(len(words) for words, _ in rows) + 2
    return "\n".join(["What to try next:", *(f"  {words:<{width}}{meaning}" for words, meaning in rows)])


def _from_here(path: Path) -> str:
    """The path as one would type it: relative if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) <= len(str(path)) else str(path)
