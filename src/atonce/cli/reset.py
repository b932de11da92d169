"""`atonce reset`: rewind a stopped pipeline, ledger and checkpoint together, after showing what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atonce.cli.parts.screen import confirm
from atonce.cli.run import overridden, pipeline_named
from atonce.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command()(reset)


def reset(
    name: Annotated[str, typer.Argument(help="The pipeline's name, its YAML file, or module:attribute.")],
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, 2026-01-31T12:00:00Z, or offsets: orders/0=5,orders/1=7.")
    ],
    pipeline: Annotated[
        str | None, typer.Option(help="YAML file or module:attribute, if NAME was not run from this directory.")
    ] = None,
    servers: Annotated[str | None, typer.Option(help="Kafka servers for whatever names none.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Move a pipeline to other positions. Whoever still runs it is fenced. State is set aside with the checkpoint.

    Examples:

      atonce reset orders --to earliest

      atonce reset orders --to 2026-01-31T12:00:00Z

      atonce reset orders.yaml --to orders/0=5,orders/1=7 --yes
    """
    from atonce.delivery.moving.rewind import Rewind

    chosen, _ = pipeline_named(pipeline or defined_in(name, f"atonce reset {name} --pipeline FILE.yaml --to …"))
    chosen = overridden(chosen, None, servers, None)

    def agree(planned: Rewind) -> None:
        print(planned.words())
        confirm("Reset it?", yes=yes)

    aside = chosen.reset(to, agree)
    print(f"{chosen.name} begins at {to} with its next run" + (f"; its old checkpoint is in {aside}" if aside else ""))


def defined_in(name: str, instead: str) -> str:
    """Where the pipeline of this name is defined; `instead` is the command that names it."""
    from atonce.cli.run import REMEMBERED

    if name.endswith((".yaml", ".yml")) or ":" in name:
        return name
    remembered = REMEMBERED / name
    if remembered.exists():
        return remembered.read_text().strip()
    for file in (Path(f"{name}.yaml"), Path(f"{name}.yml")):
        if file.exists():
            return str(file)
    raise UsageError(
        f"no pipeline {name!r} was run from this directory, so where its ledger is kept is unknown. "
        f"Next: name its definition, `{instead}`."
    )
