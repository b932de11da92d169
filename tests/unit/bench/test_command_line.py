"""`python -m bench`: help with examples, and mistakes told in one line."""

from __future__ import annotations

import pytest
from bench.__main__ import commands
from typer.testing import CliRunner

from atonce.cli.main import lay_out
from atonce.errors import UsageError

lay_out(commands)


@pytest.mark.parametrize("name", ["copy", "latency", "broker", "postgres", "price", "growth"])
def test_help_of_a_benchmark_has_an_example(name: str) -> None:
    shown = CliRunner().invoke(commands, [name, "--help"])
    assert shown.exit_code == 0
    assert f"$ python -m bench {name}" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["copy", "--peers", "flnk"], "'flnk' is not one of"),
        (["copy", "--peers", "none", "--ours", "none"], "nobody takes part"),
        (["copy", "--peers", "none", "--broker", "none"], "is not one of: apache, embedded"),
    ],
)
def test_a_wrong_contestant_is_refused_with_words(words: list[str], message: str) -> None:
    found = CliRunner().invoke(commands, words)
    assert isinstance(found.exception, UsageError), found.output
    assert message in str(found.exception)
