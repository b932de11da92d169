"""`atonce clean`: remove the files that dead attempts of a pipeline left beside its table."""

from __future__ import annotations

from typing import Annotated

import typer

from atonce.cli.parts.screen import confirm
from atonce.cli.reset import defined_in
from atonce.cli.run import overridden, pipeline_named
from atonce.errors import UsageError

_SHOWN = 10


def register(app: typer.Typer) -> None:
    app.command()(clean)


def clean(
    name: Annotated[str, typer.Argument(help="The pipeline's name, its YAML file, or module:attribute.")],
    pipeline: Annotated[
        str | None, typer.Option(help="YAML file or module:attribute, if NAME was not run from this directory.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove files of attempts that died, from a Delta or Iceberg table. The pipeline may run.

    Examples:

      atonce clean orders

      atonce clean orders.yaml --yes
    """
    from atonce.delivery.abilities import LeavesOrphans

    chosen, _ = pipeline_named(pipeline or defined_in(name, f"atonce clean {name} --pipeline FILE.yaml"))
    chosen = overridden(chosen, None, None, None)
    sink = chosen.sink
    if not isinstance(sink, LeavesOrphans):
        raise UsageError(f"{sink.describe()} leaves no files behind: there is nothing to clean")
    found = sink.orphans(chosen.name)
    if not found:
        print(f"{chosen.name}: nothing to clean")
        return
    for each in found[:_SHOWN]:
        print(each.path)
    if len(found) > _SHOWN:
        print(f"… and {len(found) - _SHOWN} more")
    size = sum(each.size for each in found)
    print(f"{len(found)} files, {size:,} bytes, of attempts that can no longer be committed")
    confirm("Remove them?", yes=yes)
    sink.remove_orphans(found)
    print(f"{chosen.name}: {len(found)} files removed")
