"""Every command explains itself with examples, and refuses wrong usage before it starts anything."""

from __future__ import annotations

import importlib

import pytest
import typer
from typer.testing import CliRunner

from atonce.errors import UsageError

COMMANDS = ("kafka", "cluster", "topics", "groups", "transactions", "produce", "consume", "doctor", "bench")
SUBCOMMANDS = [
    ("topics", "list"),
    ("topics", "describe"),
    ("topics", "create"),
    ("topics", "delete"),
    ("groups", "list"),
    ("groups", "describe"),
    ("transactions", "list"),
    ("transactions", "describe"),
    ("transactions", "find-hanging"),
    ("transactions", "abort"),
    *(("bench", name) for name in ("copy", "latency", "broker", "postgres", "price", "growth")),
]


def app(name: str) -> typer.Typer:
    made = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    importlib.import_module(f"atonce.cli.{name}").register(made)
    made.callback()(lambda: None)
    return made


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples(name: str) -> None:
    shown = CliRunner().invoke(app(name), [name, "--help"])
    assert shown.exit_code == 0
    assert "Examples:" in shown.output and f"atonce {name}" in shown.output


@pytest.mark.parametrize(("name", "sub"), SUBCOMMANDS)
def test_help_of_a_subcommand_has_an_example(name: str, sub: str) -> None:
    shown = CliRunner().invoke(app(name), [name, sub, "--help"])
    assert shown.exit_code == 0
    assert "Example:" in shown.output and f"atonce {name} {sub}" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kafka", "--nodes", "2"], "nodes must be 1 or 3"),
        (["kafka", "--set", "novalue"], "--set wants KEY=VALUE"),
        (["kafka", "--listen", "9092"], "listen must be HOST:PORT"),
        (["cluster", "--workers", "0"], "at least one worker"),
        (["consume", "t", "--from", "yesterday"], "is not earliest, latest or an offset"),
        (["consume", "t", "--isolation", "serializable"], "is not one of: read_committed"),
        (["produce", "t", "--compression", "rar"], "compression 'rar' is not one of"),
        (["transactions", "abort"], "abort wants either"),
        (["bench", "copy", "--peers", "flnk"], "'flnk' is not one of"),
        (["bench", "copy", "--peers", "none", "--ours", "none"], "nobody takes part"),
        (["bench", "copy", "--peers", "none", "--broker", "none"], "is not one of: apache, embedded"),
        (["topics", "list", "--config", "oops"], "--config wants KEY=VALUE"),
    ],
)
def test_wrong_usage_is_refused_with_words(words: list[str], message: str) -> None:
    """UsageError is what `main` turns into exit code 2."""
    found = CliRunner().invoke(app(words[0]), words)
    assert isinstance(found.exception, UsageError), found.output
    assert message in str(found.exception)
