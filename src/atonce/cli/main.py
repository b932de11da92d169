"""`atonce`: one sub-command per file of this folder. A file that defines `register(app)` is a command.

Exit codes everywhere: 0 done or stopped cleanly, 1 failed or a promise broken, 2 wrong usage or configuration and
nothing started, 3 replaced by a newer instance.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from atonce.errors import EXIT_FAILED, AtOnceError

# In the order that `atonce --help` shows them.
COMMANDS = (
    "demo",
    "run",
    "explain",
    "reset",
    "clean",
    "adopt",
    "dead-letters",
    "verify",
    "broker",
    "users",
    "kafka",
    "cluster",
    "postgres",
    "topics",
    "groups",
    "transactions",
    "produce",
    "consume",
    "doctor",
)

_INTERRUPTED = 130
"""What typer ends with after Ctrl-C."""

app = typer.Typer(
    name="atonce",
    help="PySpark pipelines over Kafka. Pick a processing guarantee with one word, prove it with one command.",
    epilog="Exit codes: 0 done or stopped cleanly, 1 failed or a promise broken, 2 wrong usage or configuration and "
    "nothing started, 3 replaced by a newer instance.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from atonce import __version__

        print(f"atonce {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of `atonce` itself."""


def module_of(command: str) -> str:
    """Where a command is defined."""
    return f"atonce.cli.{command.replace('-', '_')}"


def _register(only: str | None) -> None:
    # Loading just the command that was asked for keeps `atonce broker` from importing Spark.
    for name in (only,) if only in COMMANDS else COMMANDS:
        importlib.import_module(module_of(name)).register(app)
    lay_out(app)


def lay_out(commands: typer.Typer) -> None:
    """Help as a terminal shows it best: paragraphs flow with its width, examples stand in lines of their own."""
    for command in commands.registered_commands:
        command.help = _flowing(command.help or inspect.getdoc(command.callback) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance.info.help = _flowing(group.typer_instance.info.help or "")
            lay_out(group.typer_instance)


def _flowing(text: str) -> str:
    paragraphs = [part for part in inspect.cleandoc(text).split("\n\n") if part.strip()]
    laid_out: list[str] = []
    examples: list[str] = []
    for part in paragraphs:
        if examples and part.startswith("  "):
            examples.append(f"$ {part.strip()}")
        elif part.startswith("Example: "):
            examples = ["Example:", f"$ {part.removeprefix('Example: ')}"]
        elif part == "Examples:":
            examples = [part]
        else:
            laid_out.append(" ".join(part.split("\n")))
    return "\n\n".join([*laid_out, *(["\n".join(examples)] if examples else [])])


def _interrupted() -> NoReturn:
    """Ctrl-C in the middle of work. Commands that run until they are stopped take it as their ordinary end instead."""
    print("atonce: interrupted; what was begun is not finished", file=sys.stderr)
    sys.exit(EXIT_FAILED)


def main() -> None:
    # Where hypothesis is installed kio prepares test data: two seconds, and a directory where the user stands.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    first = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    _register(first)
    try:
        run(app)
    finally:
        if first == "run":
            # It has ended and knows its exit code; a second Ctrl-C cannot disturb the end of the process.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)


def run(commands: typer.Typer) -> None:
    """A mistake is one line and an exit code; a traceback only for who asks for it."""
    try:
        commands()
    except AtOnceError as error:
        print(f"atonce: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            _interrupted()
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("ATONCE_TRACEBACK"):
            traceback.print_exc()
        print(
            f"atonce: unexpected {type(error).__name__}: {error}\n"
            "This is an internal error. Set ATONCE_TRACEBACK=1 to see where it comes from.",
            file=sys.stderr,
        )
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
