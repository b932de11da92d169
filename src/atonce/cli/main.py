"""`atonce`: one sub-command per file of this folder. A file that defines `register(app)` is a command.

Exit codes everywhere: 0 done or stopped cleanly, 1 failed or a promise broken, 2 wrong usage or configuration and
nothing started, 3 replaced by a newer instance.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback

import typer

from atonce.errors import EXIT_FAILED, AtOnceError

# In the order that `atonce --help` shows them.
COMMANDS = (
    "demo",
    "run",
    "explain",
    "reset",
    "verify",
    "broker",
    "kafka",
    "cluster",
    "postgres",
    "topics",
    "groups",
    "transactions",
    "produce",
    "consume",
    "doctor",
    "bench",
)

app = typer.Typer(
    name="atonce",
    help="PySpark pipelines over Kafka. Pick a processing guarantee with one word, prove it with one command.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _register(only: str | None) -> None:
    # Loading just the command that was asked for keeps `atonce broker` from importing Spark.
    for name in (only,) if only in COMMANDS else COMMANDS:
        importlib.import_module(f"atonce.cli.{name}").register(app)


def main() -> None:
    first = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    _register(first)
    if len(app.registered_commands) + len(app.registered_groups) == 1:
        app.callback()(lambda: None)  # typer would otherwise drop the name of a lone command
    try:
        app()
    except AtOnceError as error:
        print(f"atonce: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("ATONCE_TRACEBACK"):
            traceback.print_exc()
        print(
            f"atonce: unexpected {type(error).__name__}: {error}\n"
            "This is a fault of ours. Set ATONCE_TRACEBACK=1 to see where it comes from.",
            file=sys.stderr,
        )
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
