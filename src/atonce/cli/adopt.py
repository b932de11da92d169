"""`atonce adopt`: take over from a query with Spark's own Kafka connector, at the very record where it stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from atonce.cli.run import overridden, pipeline_named
from atonce.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command()(adopt)


def adopt(
    pipeline: Annotated[str, typer.Argument(help="YAML file, or module:attribute of a Pipeline.")],
    checkpoint: Annotated[str, typer.Option(help="The checkpointLocation of the query, which is stopped.")],
    unfinished: Annotated[
        str | None,
        typer.Option(help="A batch that was planned and not committed: deliver it `again`, or take it for `done`."),
    ] = None,
    servers: Annotated[str | None, typer.Option(help="Kafka servers for whatever names none.")] = None,
) -> None:
    """Begin a pipeline where a query with Spark's own Kafka connector ended. The query's checkpoint stays as it is.

    Refused: state, several sources, asynchronous progress tracking, a query that still runs, and a pipeline that has a
    ledger already.

    Examples:

      atonce adopt --checkpoint /data/checkpoints/orders orders.yaml

      atonce adopt --checkpoint /data/checkpoints/orders --unfinished again orders.yaml
    """
    from atonce.delivery.moving.adopt import CHOICES

    said = next((choice for choice in CHOICES if choice == unfinished), None)
    if unfinished is not None and said is None:
        raise UsageError(f"--unfinished {unfinished!r} is not one of: {', '.join(CHOICES)}")
    chosen, _ = pipeline_named(pipeline)
    print(overridden(chosen, None, servers, None).adopt(checkpoint, said).words())
