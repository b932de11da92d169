"""Regenerates what is taken from the code: the reference pages, the pictures, and what dashboards/ has for operators.

`python scripts/docs.py` writes; `python scripts/docs.py --check` only says what is out of date (exit 1).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import dashboards  # noqa: E402
import pictures  # noqa: E402
import reference  # noqa: E402

ENVIRONMENT = {
    "ATONCE_SERVERS": "What `--servers` says where it is not given: HOST:PORT[,…].",
    "ATONCE_TRACEBACK": "Set to anything: an unexpected error is printed with its stack.",
    "ATONCE_IVY_SETTINGS": "An Ivy settings file that says where `atonce kafka` fetches its jars, such as a mirror.",
    "JAVA_HOME": "Which Java to use; else the first that is 17 or newer on the PATH or under /usr/lib/jvm.",
    "XDG_CACHE_HOME": "Where jars and archives are cached, in a folder `atonce`. Default: ~/.cache.",
    "TMPDIR": "Where scratch directories are made.",
}


def cli_reference() -> str:
    import typer
    from typer.main import get_command

    from atonce.cli import main

    main._register(None)
    command = get_command(main.app)
    rows = [
        "# The command line",
        "",
        "Made by `make docs` from the code; do not edit.",
        "",
        "Exit codes: 0 done or stopped cleanly, 1 failed or a promise broken, 2 wrong usage or configuration and "
        "nothing started, 3 replaced by a newer instance.",
        "",
        "Tables are for people; `--json` is for scripts, where it is offered. Colours and live displays appear on "
        "a terminal only. `atonce --install-completion` completes commands and options in your shell.",
        "",
        "| environment | meaning |",
        "|---|---|",
        *(f"| `{name}` | {words} |" for name, words in ENVIRONMENT.items()),
        "",
    ]
    context = typer.Context(command, info_name="atonce")
    for name in main.COMMANDS:
        rows.extend(_command_rows(command.get_command(context, name), f"atonce {name}", 2))
    return "\n".join(rows) + "\n"


def _command_rows(command: object, name: str, depth: int) -> list[str]:
    help_text = re.sub(r"\[/?[a-z ]+\]", "", command.help or "").strip()
    words, *examples = re.split(r"^Examples?:\n", help_text, maxsplit=1, flags=re.MULTILINE)
    rows = [f"{'#' * depth} `{name}`", "", words.strip(), ""]
    if examples:
        rows += ["```console", examples[0].strip(), "```", ""]
    params = [p for p in command.params if p.name not in ("help",)]
    if params:
        rows += ["| option | meaning | default |", "|---|---|---|"]
        for param in params:
            names = (
                ", ".join(f"`{o}`" for o in getattr(param, "opts", []))
                if param.param_type_name == "option"
                else f"`{param.name.upper()}`"
            )
            words = (getattr(param, "help", "") or "").replace("|", "\\|").replace("\n", " ")
            default = param.default
            shown = "" if default in (None, False, ...) or callable(default) else f"`{default}`"
            rows.append(f"| {names} | {words} | {shown} |")
        rows.append("")
    for sub in getattr(command, "commands", {}).values():
        rows.extend(_command_rows(sub, f"{name} {sub.name}", depth + 1))
    return rows


def pages() -> dict[Path, str]:
    made = {ROOT / "docs/reference/command-line.md": cli_reference()}
    for name, text in reference.pages().items():
        made[ROOT / f"docs/reference/{name}"] = text
    for name, drawn in pictures.pictures().items():
        made[ROOT / f"docs/pictures/{name}.svg"] = drawn
    return {**made, **dashboards.files()}


def main() -> int:
    stale = []
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                print(f"• wrote {path.relative_to(ROOT)}")
    if stale and "--check" in sys.argv:
        print("out of date, run `make docs`: " + ", ".join(map(str, stale)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
