"""`atonce verify`: put a pipeline, or any program, under real faults and say what was lost, duplicated or torn."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from atonce.cli.parts import verify_words as words
from atonce.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from atonce.guarantee import Guarantee
    from atonce.verify.results import Verdict
    from atonce.verify.session import Options

OWN_WORDS = ("--seed", "--faults", "--json", "--html")


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    pipeline: words.Pipeline = None,
    app: words.App = None,
    input: words.Input = None,
    output: words.Output = None,
    output_table: words.OutputTable = None,
    expect: words.Expect = None,
    guarantee: words.Level = None,
    faults: words.Faults = "default",
    list_faults: words.List = False,
    seed: words.Seed = None,
    count: words.Count = 120,
    records: words.Records = None,
    sample: words.Sample = 0,
    id: words.Id = "whole",
    stateful: words.Stateful = None,
    one_to_one: words.OneToOne = False,
    broker: words.Broker = "embedded",
    nodes: words.Nodes = 1,
    servers: words.Servers = None,
    database: words.Database = None,
    allow_external: words.AllowExternal = False,
    master: words.Master = None,
    matrix: words.Matrix = False,
    strict: words.Strict = False,
    json_file: words.Json = None,
    html_file: words.Html = None,
) -> None:
    """Kill it at its failure points and report what was lost or duplicated. Exit 0 kept, 1 broken, 2 could not run.

    Examples:

      atonce verify orders.yaml

      atonce verify orders.yaml --matrix --html report.html

      atonce verify --app "python my_app.py {servers} {input} {output}" --expect at-least-once

      atonce verify shop.pipelines:orders --faults F3,F7 --seed 7
    """
    from rich.console import Console

    from atonce.verify.report.terminal import print_list
    from atonce.verify.session import Options

    console = Console()
    if list_faults:
        print_list(console)
        return
    _refuse_nonsense(pipeline, app, matrix=matrix, one_to_one=one_to_one)
    output_table, database = _address("--output-table", output_table), _address("--database", database)
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
        database=database,
        allow_external=allow_external,
        master=master,
        stateful=stateful,
        one_to_one=one_to_one,
        replay=_replay(),
    )
    subject: Subject
    if app is not None:
        subject = partial(_command, app, expect=expect, source=input, target=output, table=output_table)
    else:
        subject = partial(_pipeline, str(pipeline), levels=_levels(matrix, guarantee))
    verdicts = _run(console, subject, options, runs=4 if matrix else 1, spark=app is None)
    raise typer.Exit(_report(console, verdicts, matrix, strict, json_file, html_file))


Subject = Callable[["Options"], "list[Verdict]"]


def _address(option: str, given: str | None) -> str | None:
    from atonce.local.secrets import from_command_line, has_password

    return None if given is None else from_command_line(option, given, secret=has_password(given))


def _refuse_nonsense(pipeline: str | None, app: str | None, *, matrix: bool, one_to_one: bool) -> None:
    if (pipeline is None) == (app is None):
        raise UsageError(
            "give a pipeline (YAML file or module:attribute), or a command with --app; `--list` lists faults"
        )
    if matrix and app:
        raise UsageError("--matrix runs a pipeline at all four levels; a command has the one level it has")
    if one_to_one and not app:
        raise UsageError("--one-to-one is for --app; a pipeline's clean run is compared with its transform as a batch")


def _levels(matrix: bool, guarantee: str | None) -> list[Guarantee]:
    """Empty: the pipeline's own."""
    from atonce.guarantee import Guarantee

    if matrix:
        return list(Guarantee)
    return [Guarantee.parse(guarantee)] if guarantee else []


def _run(console: Console, subject: Subject, options: Options, runs: int, spark: bool) -> list[Verdict]:
    """With a live bar: one step for each fault, and one for the clean run."""
    from atonce.verify.report.terminal import Live
    from atonce.verify.select import chosen

    variants, _ = chosen(options.faults, spark=spark)
    with Live(console, (len(variants) + 1) * runs) as live:
        return subject(replace(options, tell=live.tell))


def _report(
    console: Console,
    verdicts: list[Verdict],
    matrix: bool,
    strict: bool,
    json_file: Path | None,
    html_file: Path | None,
) -> int:
    """Prints and writes everything; the exit code."""
    from atonce.verify.report.html import page
    from atonce.verify.report.json import as_text
    from atonce.verify.report.terminal import print_matrix, print_verdict

    if matrix:
        print_matrix(console, verdicts)
    for verdict in verdicts if not matrix else [v for v in verdicts if v.broken]:
        print_verdict(console, verdict, strict)
    if json_file is not None:
        json_file.write_text(as_text(verdicts, strict))
    if html_file is not None:
        html_file.write_text(page(verdicts))
    codes = [verdict.exit_code(strict) for verdict in verdicts]
    return 1 if 1 in codes else max(codes)


def _command(
    app: str, options: Options, *, expect: str | None, source: str | None, target: str | None, table: str | None
) -> list[Verdict]:
    from atonce.guarantee import Guarantee
    from atonce.verify.session import verify_command

    verdict = verify_command(
        app,
        options,
        expect=Guarantee.parse(expect) if expect else None,
        input_topic=source,
        output_topic=target,
        output_table=table,
    )
    return [verdict]


def _pipeline(target: str, options: Options, *, levels: list[Guarantee]) -> list[Verdict]:
    from atonce.cli.run import pipeline_named
    from atonce.verify.session import verify_levels

    chosen, _ = pipeline_named(target)
    return verify_levels(chosen, options, levels or [chosen.level])


def _replay() -> str:
    """This command line, with the fault and the seed as places to fill in."""
    import sys

    kept, skip = [], False
    for word in sys.argv[1:]:
        if skip:
            skip = False
            continue
        name = word.partition("=")[0]
        if name in OWN_WORDS:
            skip = "=" not in word
            continue
        kept.append("--guarantee {level}" if word == "--matrix" else shlex.quote(word))
    return " ".join(["atonce", *kept, "--faults {fault} --seed {seed}"])
