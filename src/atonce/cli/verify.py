"""`atonce verify`: put a pipeline, or any program, under real faults and say what was lost, duplicated or torn."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from atonce.cli.parts import verify_words as words
from atonce.errors import UsageError
from atonce.spark.versions import spark_version

if TYPE_CHECKING:
    from rich.console import Console

    from atonce.guarantee import Guarantee
    from atonce.verify.report.compare import Certificate
    from atonce.verify.results import Verdict
    from atonce.verify.scene import Limits
    from atonce.verify.session import Options

OWN_WORDS = ("--seed", "--faults", "--pairs", "--json", "--html", "--compare")


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    pipeline: words.Pipeline = None,
    app: words.App = None,
    input: words.Input = None,
    output: words.Output = None,
    output_table: words.OutputTable = None,
    output_command: words.OutputCommand = None,
    empty_command: words.EmptyCommand = None,
    expect: words.Expect = None,
    guarantee: words.Level = None,
    faults: words.Faults = "default",
    pairs: words.Pairs = None,
    list_faults: words.List = False,
    seed: words.Seed = None,
    count: words.Count = 120,
    records: words.Records = None,
    sample: words.Sample = 0,
    id: words.Id = "whole",
    stateful: words.Stateful = None,
    one_to_one: words.OneToOne = False,
    quiet_s: words.Quiet = None,
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
    compare: words.Compare = None,
) -> None:
    """Kill it at its failure points and report what was lost or duplicated. Exit 0 kept, 1 broken, 2 could not run.

    Examples:

      atonce verify orders.yaml

      atonce verify orders.yaml --matrix --html report.html

      atonce verify --app "python my_app.py {servers} {input} {output}" --expect at-least-once

      atonce verify shop.pipelines:orders --faults F3,F7 --seed 7
    """
    from rich.console import Console

    from atonce.verify.report.compare import read_certificate
    from atonce.verify.report.terminal import print_list
    from atonce.verify.session import Options

    console = Console()
    if list_faults:
        print_list(console)
        return
    _refuse_nonsense(pipeline, app, matrix=matrix, one_to_one=one_to_one, printed=output_command, quiet_s=quiet_s)
    if pipeline is not None:
        spark_version()
    older = None if compare is None else read_certificate(compare)
    options = Options(faults=faults, pairs=pairs, seed=seed, records=count, records_file=records, sample=sample)
    options = replace(options, identify=id, stateful=stateful, one_to_one=one_to_one, limits=_limits(quiet_s))
    options = replace(options, servers=servers, broker=broker, nodes=nodes, allow_external=allow_external)
    options = replace(options, master=master, database=_address("--database", database), replay=_replay())
    subject: Subject
    if app is not None:
        table = _address("--output-table", output_table)
        outputs = Outputs(topic=output, table=table, command=output_command, empty=empty_command)
        subject = partial(_command, app, expect=expect, source=input, outputs=outputs)
    else:
        subject = partial(_pipeline, str(pipeline), levels=_levels(matrix, guarantee))
    verdicts = _run(console, subject, options, runs=4 if matrix else 1, spark=app is None)
    code = _report(console, verdicts, matrix, strict, json_file, html_file)
    if older is not None and _told_worse(console, older, verdicts, strict):
        code = 1
    raise typer.Exit(code)


Subject = Callable[["Options"], "list[Verdict]"]


def _address(option: str, given: str | None) -> str | None:
    from atonce.local.secrets import from_command_line, has_password

    return None if given is None else from_command_line(option, given, secret=has_password(given))


def _limits(quiet_s: float | None) -> Limits:
    from atonce.verify.scene import Limits

    return Limits() if quiet_s is None else Limits.for_quiet(quiet_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where a command writes."""

    topic: str | None
    table: str | None
    command: str | None
    empty: str | None


def _refuse_nonsense(
    pipeline: str | None,
    app: str | None,
    *,
    matrix: bool,
    one_to_one: bool,
    printed: str | None,
    quiet_s: float | None,
) -> None:
    if printed and not app:
        raise UsageError("--output-command is for --app; a pipeline's sink says itself how its output is read")
    if (pipeline is None) == (app is None):
        raise UsageError(
            "give a pipeline (YAML file or module:attribute), or a command with --app; `--list` lists faults"
        )
    if matrix and app:
        raise UsageError("--matrix runs a pipeline at all four levels; a command has the one level it has")
    if quiet_s is not None and (not app or quiet_s <= 0):
        raise UsageError(
            f"--quiet-s {quiet_s:g} is for --app, and more than 0: a pipeline says itself when it has come to its end"
        )
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
    from atonce.verify.select import chosen, chosen_large, pairs_among

    variants, _ = chosen(options.faults, spark=spark)
    more = len(pairs_among(variants, options.faults, options.pairs, 0))
    large = chosen_large(options.faults, spark=spark)
    more += len(large) + 1 if large else 0
    with Live(console, (len(variants) + more + 1) * runs) as live:
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


def _told_worse(console: Console, older: Certificate, verdicts: list[Verdict], strict: bool) -> bool:
    from atonce.verify.report.compare import changed, worse
    from atonce.verify.report.json import certificate

    now = certificate(verdicts, strict)
    if words := changed(older, now):
        console.print(words, style="yellow")
    lines = worse(older, now)
    for line in lines:
        console.print(f"worse: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    if not lines:
        console.print(f"nothing is worse than on {older['made_at']}", highlight=False)
    return bool(lines)


def _command(app: str, options: Options, *, expect: str | None, source: str | None, outputs: Outputs) -> list[Verdict]:
    from atonce.guarantee import Guarantee
    from atonce.verify.session import verify_command

    verdict = verify_command(
        app,
        options,
        expect=Guarantee.parse(expect) if expect else None,
        input_topic=source,
        output_topic=outputs.topic,
        output_table=outputs.table,
        output_command=outputs.command,
        empty_command=outputs.empty,
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
