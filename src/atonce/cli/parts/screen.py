"""How commands speak: tables for people, JSON for scripts. Colours only on a terminal."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def console() -> Console:
    """Plain and never wrapped where standard output is not a terminal, so that grep and cut work."""
    terminal = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not terminal, no_color=not terminal, width=None if terminal else 200)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=_plain, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing found") -> None:
    """Numbers to the right. An empty table says so in words."""
    listed = [list(row) for row in rows]
    if not listed:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in listed)
        table.add_column(
            column, justify="right" if numeric else "left", overflow="fold", no_wrap=not sys.stdout.isatty()
        )
    for row in listed:
        table.add_row(*(escape(_cell(value)) for value in row))
    console().print(table)


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal; elsewhere the answer must have been given with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        from atonce.errors import UsageError

        raise UsageError(f"{question} Nobody can be asked here: add --yes if you mean it.")
    if not typer.confirm(question):
        raise typer.Exit(1)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(each) for each in value)
    return str(value)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
