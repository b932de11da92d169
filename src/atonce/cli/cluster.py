"""`atonce cluster`: a Spark standalone master and workers, run in the foreground."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated

import typer

from atonce.cli.parts.foreground import announce, stay, stoppable
from atonce.errors import UsageError
from atonce.local.child import ChildFailed

HELP = """Run a Spark standalone cluster on this machine, from the pip package alone.

When all workers are registered it prints one line, [bold]ready on spark://HOST:PORT[/bold], and stays in the
foreground; Ctrl-C ends master, workers and their executors.

Examples:

  atonce cluster                       # a master and two workers

  atonce cluster --workers 4 --cores 2 --memory 2g

  atonce run orders.yaml --master spark://127.0.0.1:7077
"""


def register(app: typer.Typer) -> None:
    app.command("cluster", help=HELP)(cluster)


def cluster(
    workers: Annotated[int, typer.Option(help="How many workers.")] = 2,
    cores: Annotated[int, typer.Option(min=0, help="Cores per worker; 0: all of this machine, as Spark does.")] = 0,
    memory: Annotated[str, typer.Option(help="Memory per worker, as Spark writes it.")] = "1g",
    listen: Annotated[str, typer.Option(help="HOST:PORT of the master; port 0 picks a free one.")] = "127.0.0.1:0",
) -> None:
    from atonce.local.servers.spark_cluster import SparkCluster

    if not re.fullmatch(r"[1-9]\d*[kmgt]b?", memory.lower()):
        raise UsageError(f"--memory wants a size as Spark writes it, such as 512m or 2g, got {memory!r}")
    each = cores or os.cpu_count() or 1
    with stoppable(), SparkCluster(workers, cores=each, memory=memory, listen=listen) as running:
        announce(running.master)
        print(f"other drivers than atonce: spark-submit --properties-file {running.properties}", file=sys.stderr)
        reported: set[str] = set()

        def check() -> None:
            ended = set(running.ended())
            for name in sorted(ended - reported):
                print(f"atonce: Spark's {name} has ended", file=sys.stderr)
            reported.update(ended)
            if "master" in ended:
                raise ChildFailed("Spark's master has ended by itself")

        stay(check)
