"""`atonce kafka`: Apache Kafka itself, fetched, formatted and run in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from atonce.cli.parts.foreground import announce, stay, stoppable
from atonce.errors import UsageError
from atonce.local.child import ChildFailed

HELP = """Run Apache Kafka 4.3 on this machine, one node or three.

The first run fetches its jars (44 MB) into your cache and checks them. When the brokers answer it prints one line,
[bold]ready on HOST:PORT[,HOST:PORT…][/bold], and stays in the foreground; Ctrl-C ends it and everything it started.

Examples:

  atonce kafka                  # a free port; data is thrown away

  atonce kafka --listen 127.0.0.1:9092 --data ./kafka-data

  atonce kafka --nodes 3        # three copies, min.insync.replicas=2

  atonce kafka --set log.retention.hours=1
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
) -> None:
    from atonce.local.servers.kafka import ApacheKafka

    with stoppable(), ApacheKafka(nodes=nodes, data=data, listen=listen, settings=parse_settings(settings)) as running:
        announce(running.servers)
        told: set[int] = set()

        def check() -> None:
            ended = set(running.ended())
            for node in sorted(ended - told):
                print(f"atonce: Apache Kafka node {node} has ended; its log: {running.log(node)}", file=sys.stderr)
            told.update(ended)
            if len(told) == len(running.nodes):
                raise ChildFailed("Apache Kafka has ended by itself. See its log above.")

        stay(check)


def parse_settings(pairs: list[str] | None) -> dict[str, str]:
    settings = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set wants KEY=VALUE, got {pair!r}")
        settings[key.strip()] = value.strip()
    return settings
