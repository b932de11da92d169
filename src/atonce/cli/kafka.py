"""`atonce kafka`: Apache Kafka itself, fetched, formatted and run in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from atonce.cli.parts.foreground import announce, stay, stoppable
from atonce.cli.parts.servers import parse_pairs
from atonce.errors import UsageError
from atonce.local.child import ChildFailed
from atonce.local.servers.pins import KAFKA_VERSION

HELP = """Run Apache Kafka on this machine, one node or three: 4.3, or another version from 3.7 on.

The first run fetches its jars (44 MB) into your cache and checks them. When the brokers answer it prints one line,
[bold]ready on HOST:PORT[,HOST:PORT…][/bold], and stays in the foreground; Ctrl-C ends it and everything it started.

Examples:

  atonce kafka                  # a free port; data is thrown away

  atonce kafka --listen 127.0.0.1:9092 --data ./kafka-data

  atonce kafka --nodes 3        # three copies, min.insync.replicas=2

  atonce kafka --version 3.9.2 --set transaction.partition.verification.enable=false

  atonce kafka --feature transaction.version=1
"""


def register(app: typer.Typer) -> None:
    app.command("kafka", help=HELP)(kafka)


def kafka(
    nodes: Annotated[int, typer.Option(help="1 or 3.")] = 1,
    data: Annotated[Path | None, typer.Option(help="Keep data here. Without it: scratch, removed at the end.")] = None,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT of the first node, the next ones on the ports after it; 0 picks free ones.")
    ] = "127.0.0.1:0",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A broker setting, KEY=VALUE. Can be repeated.")
    ] = None,
    version: Annotated[
        str, typer.Option(help="Which Apache Kafka: 3.9.2, or 3.9 for the newest of that line that we pin.")
    ] = KAFKA_VERSION,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", help="NAME=LEVEL that new data is formatted with. Can be repeated."),
    ] = None,
) -> None:
    from atonce.local.servers.kafka import ApacheKafka

    kafka = ApacheKafka(
        nodes=nodes,
        data=data,
        listen=listen,
        settings=parse_pairs("--set", settings),
        version=version,
        features=parse_features(features),
    )
    with stoppable(), kafka as running:
        announce(running.servers)
        reported: set[int] = set()

        def check() -> None:
            ended = set(running.ended())
            for node in sorted(ended - reported):
                print(f"atonce: Apache Kafka node {node} has ended; its log: {running.log(node)}", file=sys.stderr)
            reported.update(ended)
            if len(reported) == len(running.nodes):
                raise ChildFailed("Apache Kafka has ended by itself. See its log above.")

        stay(check)


def parse_features(pairs: list[str] | None) -> dict[str, int]:
    found = parse_pairs("--feature", pairs, "NAME=LEVEL")
    for name, level in found.items():
        if not level.isdigit():
            raise UsageError(f"--feature wants NAME=LEVEL, got {f'{name}={level}'!r}")
    return {name: int(level) for name, level in found.items()}
