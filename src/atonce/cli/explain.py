"""`atonce explain`: which guarantee a pipeline can have, why, where progress is kept, and where the promise ends."""

from __future__ import annotations

from typing import Annotated

import typer

from atonce.cli.run import overridden, pipeline_named


def register(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    pipeline: Annotated[str, typer.Argument(help="A YAML file, or module:attribute of a Pipeline.")],
    guarantee: Annotated[str | None, typer.Option(help="Explain this level instead of the pipeline's own.")] = None,
    servers: Annotated[str | None, typer.Option(help="Kafka servers for whatever names none.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Also ask the servers, and warn of what they may forget.")] = False,
) -> None:
    """Which guarantee source and sink allow, why, where progress is kept. Starts nothing; connects only with --ask.

    Where a transform may keep state, or rows need an order, Spark is asked for its plan.

    Examples:

      atonce explain orders.yaml

      atonce explain shop.pipelines:orders --guarantee at-least-once

      atonce explain orders.yaml --ask
    """
    chosen, _ = pipeline_named(pipeline)
    print(overridden(chosen, guarantee, servers, None).explain(ask=ask))
