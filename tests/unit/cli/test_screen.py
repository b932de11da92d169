"""Tables for people, JSON for scripts, nothing coloured where nobody looks."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from atonce.cli.parts.doctor_machine import disks, machine, spark
from atonce.cli.parts.lines import Lines
from atonce.cli.parts.screen import confirm, print_json, print_table
from atonce.errors import UsageError
from atonce.local.child import Child


@dataclass(frozen=True)
class Row:
    name: str
    count: int


def test_table_is_plain_and_unwrapped_when_not_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions"), [("a" * 150, 4), ("b", 16)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "\x1b" not in "".join(lines)
    assert lines[1].split() == ["a" * 150, "4"]


def test_markup_in_a_name_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("group",), [("[red]x[/]",)])
    assert "[red]x[/]" in capsys.readouterr().out


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [], empty="no topics")
    assert capsys.readouterr().out == "no topics\n"


def test_json_of_dataclasses_is_machine_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([Row("a", 1)])
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "count": 1}]


def test_a_dangerous_question_is_never_answered_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="--yes"):
        confirm("Delete everything?", yes=False)
    confirm("Delete everything?", yes=True)


def test_lines_become_keys_and_values() -> None:
    lines = Lines(separator=b":").batches(BytesIO(b"a:1\r\nnokey\nb:2:3"))
    rows = [(row["key"], row["value"]) for batch in lines for row in batch.to_pylist()]
    assert rows == [(b"a", b"1"), (None, b"nokey"), (b"b", b"2:3")]


def test_last_line_without_newline_is_not_lost() -> None:
    rows = [row["value"] for batch in Lines().batches(BytesIO(b"1\n2\n3")) for row in batch.to_pylist()]
    assert rows == [b"1", b"2", b"3"]


def test_empty_lines_are_records_too() -> None:
    rows = [row["value"] for batch in Lines().batches(BytesIO(b"1\n\n3\n")) for row in batch.to_pylist()]
    assert rows == [b"1", b"", b"3"]


def test_doctor_looks_at_everything_on_this_machine() -> None:
    found = {finding.subject for finding in machine()}
    assert {"Java", "Spark", "ports", "host name", "disk here", "disk for shuffles", "memory"} <= found


def test_doctor_warns_about_a_foreign_spark_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3.5")
    finding = spark()
    assert finding.verdict == "warning" and "/opt/spark-3.5" in finding.found and finding.advice


def test_doctor_names_a_missing_shuffle_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/does/not/exist")
    finding = next(each for each in disks() if each.subject == "disk for shuffles")
    assert finding.verdict == "problem" and "SPARK_LOCAL_DIRS" in finding.advice


def test_a_light_command_does_not_import_spark() -> None:
    """`atonce topics --help` must not cost seconds."""
    probe = (
        "import sys; sys.argv = ['atonce', 'topics', '--help']\n"
        "from atonce.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'pyspark', 'numba', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr


def test_a_broker_starts_without_the_tools_of_our_tests(scratch: Path) -> None:
    """kio imports hypothesis where it finds it, which takes seconds and leaves a directory where the user stands."""
    command = [sys.executable, "-m", "atonce.cli.main", "broker", "--data", "data", "--listen", "127.0.0.1:0"]
    with Child(command, cwd=scratch) as child:
        child.wait_for_line("ready on", 60)
    assert not (scratch / ".hypothesis").exists()
