"""The words of `atonce verify`: every option with its help, one line each where the command is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Pipeline = Annotated[str | None, typer.Argument(help="A YAML file, or module:attribute of a Pipeline.")]
App = Annotated[
    str | None,
    typer.Option("--app", help="A command instead; {servers} {input} {output} {group} {url} {table} are filled in."),
]
Input = Annotated[str | None, typer.Option("--input", help="Topic that the command reads.")]
Output = Annotated[str | None, typer.Option("--output", help="Topic that the command writes.")]
OutputTable = Annotated[
    str | None,
    typer.Option(
        help="URL#TABLE that the command writes instead, a password in it as '${NAME}' or '${file:PATH}'; needs "
        "--allow-external. With {url} in --app a copy of the "
        "table in a scratch schema is used; without it the table itself, EMPTIED before every run."
    ),
]
OutputCommand = Annotated[
    str | None,
    typer.Option(
        help="A command that prints what is there now, one JSON object a row, for outputs that verify has no reader "
        "for; with the places of --app."
    ),
]
EmptyCommand = Annotated[
    str | None,
    typer.Option(help="A command that empties that output, run before every run; not needed with {output} in both."),
]
Expect = Annotated[str | None, typer.Option(help="Level that the command promises; without it: what is seen.")]
Level = Annotated[str | None, typer.Option(help="Verify the pipeline at this level instead of its own.")]
Faults = Annotated[
    str, typer.Option(help="default, all, or names from --list, separated by commas; NAME:large: over a large batch.")
]
Pairs = Annotated[
    int | None,
    typer.Option(help="How many runs have two faults at once, drawn by the seed; default: some with --faults all."),
]
List = Annotated[bool, typer.Option("--list", help="List the faults and what each level may show.")]
Seed = Annotated[int | None, typer.Option(help="Fixes everything that is random.")]
Count = Annotated[int, typer.Option(help="How many numbered records to make.")]
Records = Annotated[Path | None, typer.Option(help="A file of records: one value a line, or key TAB value.")]
Sample = Annotated[
    int,
    typer.Option(help="Use the first N records of the real input topic, which is only read; needs --allow-external."),
]
Id = Annotated[str, typer.Option("--id", help="What tells outputs apart: whole, $.json.path, or a pattern.")]
Stateful = Annotated[
    bool | None,
    typer.Option(
        "--stateful/--every-record",
        help="Judge the last value of every key, or every record. A pipeline is looked at to know which.",
    ),
]
OneToOne = Annotated[
    bool,
    typer.Option("--one-to-one", help="The command promises one output for every input, also in the clean run."),
]
Quiet = Annotated[
    float | None,
    typer.Option(
        "--quiet-s",
        help="With --app: output that was still for so many seconds is complete; default: 1, or longer as a run "
        "without faults shows. For programs that hold output back, such as until they commit.",
    ),
]
Broker = Annotated[
    str,
    typer.Option(
        help="Which broker verify starts: embedded; embedded-v1, with transaction protocol 1 as Kafka 3.x; or apache "
        "for Apache Kafka itself."
    ),
]
Nodes = Annotated[int, typer.Option(help="3: a cluster of Apache Kafka, whose nodes are killed and cut off.")]
Servers = Annotated[str | None, typer.Option(help="A Kafka of yours, HOST:PORT,…; needs --allow-external.")]
Database = Annotated[
    str | None,
    typer.Option(
        help="A PostgreSQL of yours for a pipeline's table, in a scratch schema; needs --allow-external. Else verify "
        "starts its own."
    ),
]
AllowExternal = Annotated[
    bool,
    typer.Option(help="Agree that scratch topics and schemas are made on what is yours, and removed again."),
]
Master = Annotated[str | None, typer.Option(help="Spark master for the pipeline.")]
Matrix = Annotated[bool, typer.Option("--matrix", help="All four levels; with --faults all, all faults.")]
Strict = Annotated[
    bool, typer.Option(help="Faults that were too weak are a failure, and so are faults that were not exercised.")
]
Compare = Annotated[
    Path | None,
    typer.Option(help="An older certificate: says what is worse now, exit code 1 if anything is."),
]
Json = Annotated[Path | None, typer.Option("--json", help="Write a certificate for CI.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write a page for people.")]
