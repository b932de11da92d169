"""`atonce postgres`: a PostgreSQL of your own in the foreground, for trying things out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atonce.cli.parts.foreground import announce, stay, stoppable


def register(app: typer.Typer) -> None:
    app.command()(postgres)


def postgres(
    data: Annotated[Path | None, typer.Option(help="Keep the data here; default: a scratch directory.")] = None,
) -> None:
    """Run a PostgreSQL of your own on a free port until Ctrl-C; prints `ready on URL`. No system service is touched.

    Examples:

      atonce postgres

      atonce postgres --data ./pgdata
    """
    from atonce.errors import AtOnceError
    from atonce.local.servers.postgres import PostgresServer

    with stoppable(), PostgresServer(data.absolute() if data else None) as server:
        announce(server.url)

        def alive() -> None:
            if not server.running:
                raise AtOnceError("PostgreSQL has ended by itself; its log is in the data directory")

        stay(alive)
