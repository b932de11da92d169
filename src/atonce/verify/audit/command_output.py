"""Output that nobody here has a reader for: a command of the user's prints it, one JSON object a line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atonce.connectors.contract import Written
from atonce.errors import UnreachableError, UsageError

TIMEOUT_S = 60.0


class PrintedRows(Written):
    """What the command prints now. `filled` puts the names of the present run into it."""

    def __init__(self, command: str, filled: Callable[[str], str]) -> None:
        self._command, self._filled = command, filled
        self.title = "output of --output-command"

    def rows(self) -> Sequence[Mapping[str, Any]]:
        return [_row(line, number) for number, line in enumerate(self._printed().split("\n"), 1) if line.strip()]

    def _printed(self) -> str:
        return ran(self._filled(self._command), "--output-command")


def ran(command: str, option: str) -> str:
    """What it printed; whatever else it does is an error: rows that were not printed would count as lost."""
    try:
        done = subprocess.run(command, shell=True, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{option} did not end within {TIMEOUT_S:g} s: {command}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UnreachableError(f"{option} ended with code {done.returncode}: {said[-1][:300] if said else command}")
    return done.stdout.decode(errors="backslashreplace")


def _row(line: str, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UsageError(
            f"line {number} of --output-command is no JSON object: {line[:80]!r}. Expected one object a row, such as "
            '{"id": 7, "body": "x"}.'
        )
    return row
