"""`--output-command`: rows of any output, printed by a command of the user's."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from atonce.errors import UnreachableError, UsageError
from atonce.verify.audit.command_output import PrintedRows
from atonce.verify.audit.output import of_rows
from atonce.verify.ground.addresses import table_at
from atonce.verify.session import Options, verify_command


def printing(words: str) -> PrintedRows:
    return PrintedRows(f"printf %s {shlex.quote(words)}", lambda command: command)


def test_one_object_a_line_is_one_row() -> None:
    rows = printing('{"id": 1, "body": null}\n\n{"id": 2, "body": "a\u2028b"}\n').rows()
    assert rows == [{"id": 1, "body": None}, {"id": 2, "body": "a\u2028b"}]
    assert len(of_rows(printing('{"id": 1}'))) == 1


def test_what_is_no_object_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 2 of --output-command is no JSON object: '7'"):
        printing('{"id": 1}\n7').rows()


def test_a_command_that_fails_is_trouble_and_never_an_empty_output() -> None:
    failing = f"{shlex.quote(sys.executable)} -c 'import sys; print(1); sys.exit(\"no such table\")'"
    with pytest.raises(UnreachableError, match="ended with code 1: no such table"):
        PrintedRows(failing, lambda command: command).rows()


def test_an_output_that_nobody_empties_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="every run must begin with an empty output"):
        verify_command("app {input}", Options(), expect=None, output_command="cat out")


def test_every_table_of_ours_is_read_by_the_reader_that_its_connector_brings(tmp_path: Path) -> None:
    for address in ("sqlite", "duckdb", "delta", "iceberg"):
        table = table_at(f"{address}:///{tmp_path}/{address}#orders")
        table.empty()
        assert (table.name, list(table.rows())) == ("orders", [])
    with pytest.raises(UsageError, match=r"only tables at .*delta:///.*can be audited"):
        table_at("oracle://db#orders")
