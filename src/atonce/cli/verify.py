"""`atonce verify`: put a pipeline, or any program, under real faults and say what was lost, duplicated or torn."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.guarantee import Guarantee
    from atonce.verify.results import Verdict
    from atonce.verify.session import Options

OWN_WORDS = ("--seed", "--faults", "--json", "--html")


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    pipeline: Annotated[str | None, typer.Argument(help="A YAML file, or module:attribute of a Pipeline.")] = None,
    app: Annotated[
        str | None,
        typer.Option(
            "--app", help="A command instead; {servers} {input} {output} {group} {url} {table} are filled in."
        ),
    ] = None,
    input: Annotated[str | None, typer.Option("--input", help="Topic that the command reads.")] = None,
    output: Annotated[str | None, typer.Option("--output", help="Topic that the command writes.")] = None,
    output_table: Annotated[
        str | None,
        typer.Option(
            help="URL#TABLE that the command writes instead. Emptied before every run: needs --allow-external."
        ),
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="Level that the command promises; without it: what is seen.")
    ] = None,
    guarantee: Annotated[str | None, typer.Option(help="Verify the pipeline at this level instead of its own.")] = None,
    faults: Annotated[str, typer.Option(help="default, all, or F3,F7,F14/prepared …")] = "default",
    list_faults: Annotated[bool, typer.Option("--list", help="List the faults and what each level may show.")] = False,
    seed: Annotated[int | None, typer.Option(help="Fixes everything that is random.")] = None,
    count: Annotated[int, typer.Option(help="How many numbered records to make.")] = 120,
    records: Annotated[Path | None, typer.Option(help="A file of records: one value a line, or key TAB value.")] = None,
    sample: Annotated[int, typer.Option(help="Use the first N records of the real input topic.")] = 0,
    id: Annotated[
        str, typer.Option("--id", help="What tells outputs apart: whole, $.json.path, or a pattern.")
    ] = "whole",
    stateful: Annotated[bool, typer.Option(help="Judge the last value of every key, not every record.")] = False,
    broker: Annotated[str, typer.Option(help="Which broker verify starts: embedded or apache.")] = "embedded",
    nodes: Annotated[int, typer.Option(help="3: a cluster of Apache Kafka, for F23 and F28.")] = 1,
    servers: Annotated[str | None, typer.Option(help="A Kafka of yours, HOST:PORT,…; needs --allow-external.")] = None,
    allow_external: Annotated[
        bool,
        typer.Option(help="Agree that scratch topics are made on your broker, and that --output-table is emptied."),
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master for the pipeline.")] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="All four levels; with --faults all, all faults.")] = False,
    strict: Annotated[bool, typer.Option(help="Faults that were too weak are a failure.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write a certificate for CI.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a page for people.")] = None,
) -> None:
    """Kill it at its failure points and report what was lost or duplicated. Exit 0 kept, 1 broken, 2 could not run.

    Examples:

      atonce verify orders.yaml

      atonce verify orders.yaml --matrix --html report.html

      atonce verify --app "python my_app.py {servers} {input} {output}" --expect at-least-once

      atonce verify shop.pipelines:orders --faults F3,F7 --seed 7
    """
    from rich.console import Console

    from atonce.guarantee import Guarantee
    from atonce.verify.report_terminal import Live, print_list, print_matrix, print_verdict
    from atonce.verify.scene import Limits
    from atonce.verify.select import chosen
    from atonce.verify.session import Options

    console = Console()
    if list_faults:
        print_list(console)
        return
    if (pipeline is None) == (app is None):
        raise UsageError(
            "give a pipeline (YAML file or module:attribute), or a command with --app; `--list` lists faults"
        )
    levels = list(Guarantee) if matrix else []
    if matrix and app:
        raise UsageError("--matrix runs a pipeline at all four levels; a command has the one level it has")
    variants, _ = chosen(faults, spark=app is None)
    options = Options(
        faults=faults,
        seed=seed,
        records=count,
        records_file=records,
        sample=sample,
        identify=id,
        servers=servers,
        broker=broker,
        nodes=nodes,
        allow_external=allow_external,
        master=master,
        stateful=stateful,
        limits=Limits(),
        replay=_replay(),
    )
    with Live(console, (len(variants) + 1) * max(1, len(levels))) as live:
        from dataclasses import replace

        options = replace(options, tell=live.tell)
        if app is not None:
            verdicts = [_command(app, options, expect, input, output, output_table)]
        else:
            verdicts = _pipeline(str(pipeline), options, levels, guarantee)
    if matrix:
        print_matrix(console, verdicts)
    for verdict in verdicts if not matrix else [v for v in verdicts if v.broken]:
        print_verdict(console, verdict, strict)
    _write(verdicts, strict, json_file, html_file)
    codes = [verdict.exit_code(strict) for verdict in verdicts]
    raise typer.Exit(1 if 1 in codes else max(codes))


def _command(
    app: str, options: Options, expect: str | None, source: str | None, target: str | None, table: str | None
) -> Verdict:
    from atonce.guarantee import Guarantee
    from atonce.verify.session import verify_command

    return verify_command(
        app,
        options,
        expect=Guarantee.parse(expect) if expect else None,
        input_topic=source,
        output_topic=target,
        output_table=table,
    )


def _pipeline(target: str, options: Options, levels: list[Guarantee], guarantee: str | None) -> list[Verdict]:
    from atonce.cli.run import pipeline_named
    from atonce.guarantee import Guarantee
    from atonce.verify.session import verify_levels

    chosen, _ = pipeline_named(target)
    wanted = levels or [Guarantee.parse(guarantee) if guarantee else chosen.level]
    return verify_levels(chosen, options, wanted)


def _write(verdicts: list[Verdict], strict: bool, json_file: Path | None, html_file: Path | None) -> None:
    from atonce.verify.report_html import page
    from atonce.verify.report_json import as_text

    if json_file is not None:
        json_file.write_text(as_text(verdicts, strict))
    if html_file is not None:
        html_file.write_text(page(verdicts))


def _replay() -> str:
    """This command line, with the fault and the seed as places to fill in."""
    import sys

    words, skip = [], False
    for word in sys.argv[1:]:
        if skip:
            skip = False
            continue
        name = word.partition("=")[0]
        if name in OWN_WORDS:
            skip = "=" not in word
            continue
        if word != "--matrix":
            words.append(shlex.quote(word))
    return " ".join([Path(os.fspath(sys.argv[0])).name, *words, "--faults {fault} --seed {seed}"])
