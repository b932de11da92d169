"""Every command explains itself with examples, and refuses wrong usage before it starts anything."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from atonce.cli import main
from atonce.errors import UsageError

COMMANDS = main.COMMANDS
EXAMPLES = Path(__file__).parents[3] / "examples"
SUBCOMMANDS = [
    ("topics", "list"),
    ("topics", "describe"),
    ("topics", "create"),
    ("topics", "delete"),
    ("groups", "list"),
    ("groups", "describe"),
    ("dead-letters", "list"),
    ("dead-letters", "show"),
    ("dead-letters", "replay"),
    ("transactions", "list"),
    ("transactions", "describe"),
    ("transactions", "find-hanging"),
    ("transactions", "abort"),
]


def app(name: str) -> typer.Typer:
    made = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    importlib.import_module(main.module_of(name)).register(made)
    made.callback()(lambda: None)
    main.lay_out(made)
    return made


def atonce(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atonce.cli.main", *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples(name: str) -> None:
    shown = CliRunner().invoke(app(name), [name, "--help"])
    assert shown.exit_code == 0
    assert "Examples:" in shown.output and f"atonce {name}" in shown.output
    assert shown.output.count(" $ ") >= 2, "each example stands on a line of its own"


@pytest.mark.parametrize(("name", "sub"), SUBCOMMANDS)
def test_help_of_a_subcommand_has_an_example(name: str, sub: str) -> None:
    shown = CliRunner().invoke(app(name), [name, sub, "--help"])
    assert shown.exit_code == 0
    assert ("Example:" in shown.output or "Examples:" in shown.output) and f"$ atonce {name} {sub}" in " ".join(
        shown.output.split()
    )


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
        (["topics", "list", "--config", "oops"], "--config wants KEY=VALUE"),
    ],
)
def test_wrong_usage_is_refused_with_words(words: list[str], message: str) -> None:
    """UsageError is what `main` turns into exit code 2."""
    found = CliRunner().invoke(app(words[0]), words)
    assert isinstance(found.exception, UsageError), found.output
    assert message in str(found.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("run",),
        ("run", "missing.yaml"),
        ("run", "missing.module:pipeline"),
        ("explain", "missing.yaml"),
        ("topics", "list", "--no-such-option"),
        ("demo", "--orders", "3"),
        ("demo", "--orders", "many"),
        ("demo", "--html", "/no/such/directory/demo.html"),
        ("cluster", "--memory", "plenty"),
        ("postgres", "--data", "/proc/nothing-can-be-made-here"),
        ("produce", "orders", "--file", "missing.txt", "--servers", "127.0.0.1:1"),
        ("transactions", "abort", "--topic", "orders"),
        ("broker",),
        ("broker", "--data", "unused", "--listen", "nowhere"),
        ("broker", "--data", "unused", "--set", "no.such.setting=1"),
        ("reset", "unknown", "--to", "earliest"),
        ("run", str(EXAMPLES / "copy.yaml"), "--metrics", "nonsense"),
        ("topics", "list", "--servers", "127.0.0.1:1"),
    ],
)
def test_wrong_usage_ends_with_exit_code_2_and_no_stack_trace(words: tuple[str, ...]) -> None:
    ended = atonce(*words)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.strip() and "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_version_and_help_end_with_exit_code_0_and_help_names_the_exit_codes() -> None:
    assert atonce("--version").stdout.startswith("atonce 0.")
    shown = atonce("--help")
    assert shown.returncode == 0 and "Exit codes: 0 done" in shown.stdout
    assert all(f" {name} " in shown.stdout for name in main.COMMANDS)


def test_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> set[str]:
        words = line.split(" ")
        asked = {"_ATONCE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        program = "import sys; sys.argv = ['atonce']; from atonce.cli.main import main; main()"
        answer = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60
        )
        return set(answer.stdout.split())

    assert completed("atonce t") == {"topics", "transactions"}
    assert completed("atonce transactions f") == {"find-hanging"}
    assert "--available-now" in completed("atonce run --")
