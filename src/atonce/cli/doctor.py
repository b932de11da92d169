"""`atonce doctor`: looks at this machine and at a cluster, and says what to do about each finding."""

from __future__ import annotations

import sys

import typer

from atonce.cli.parts.finding import Finding, note, problem
from atonce.cli.parts.screen import JsonOption, console, print_json
from atonce.cli.parts.servers import BROKER_DATA, ConfigOption, ServersOption, parse_config
from atonce.errors import EXIT_FAILED, UnreachableError

HELP = """Check this machine and a Kafka cluster, and say what to do about each finding.

Looks at Java, Spark, ports, disk and memory; with a cluster also at its version and features, settings that matter to
guarantees, clock, hanging transactions, and readers. Exit code 1 if there is a problem.

Examples:

  atonce doctor

  atonce doctor --servers 127.0.0.1:9092

  atonce doctor --json | jq '.[] | select(.verdict != "ok")'
"""
MARKS = {"ok": "[green]ok[/]", "note": "[cyan]note[/]", "warning": "[yellow]warning[/]", "problem": "[red]problem[/]"}


def register(app: typer.Typer) -> None:
    app.command("doctor", help=HELP)(doctor)


def doctor(servers: ServersOption = None, json: JsonOption = False, config: ConfigOption = None) -> None:
    from atonce.cli.parts.doctor_machine import machine

    findings: list[Finding] = []
    for finding in [*machine(), *_cluster(servers, config)]:
        findings.append(finding)
        if not json:
            _show(finding)
    if json:
        print_json(findings)
    troubles = sum(finding.verdict == "problem" for finding in findings)
    if not json:
        warnings = sum(finding.verdict == "warning" for finding in findings)
        print(f"\n{len(findings)} checks: {troubles} problem(s), {warnings} warning(s)")
    if troubles:
        raise typer.Exit(EXIT_FAILED)


def _cluster(servers: str | None, config: list[str] | None) -> list[Finding]:
    from atonce.broker.address import find_running
    from atonce.cli.parts.doctor_cluster import cluster_findings
    from atonce.client.cluster import Cluster

    chosen = servers or find_running(BROKER_DATA)
    if chosen is None:
        return [note("cluster", "none was looked at: no embedded broker runs here", "name one with --servers")]
    try:
        with Cluster(chosen, parse_config(config)) as cluster:
            return list(cluster_findings(cluster))
    except UnreachableError as error:
        return [problem("cluster", str(error), f"start it, or correct --servers {chosen}")]


def _show(finding: Finding) -> None:
    from rich.markup import escape

    width = 10 if sys.stdout.isatty() else 8
    mark = MARKS[finding.verdict] + " " * (width - len(finding.verdict))
    line = f"{mark}{escape(finding.subject)}: {escape(finding.found)}"
    console().print(line)
    if finding.advice:
        console().print(f"{' ' * width}→ {escape(finding.advice)}")
