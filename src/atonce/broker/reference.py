"""The tables of docs/broker.md, made from the code. `python -m atonce.broker.reference FILE` brings them up to date."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from atonce.broker.config import BROKER, MAX_INT, MAX_LONG, TOPIC, Setting, text_of
from atonce.broker.router import routes


def api_table() -> str:
    rows = ["| API | key | versions | |", "|---|---|---|---|"]
    for route in routes().values():
        module = importlib.import_module(f"atonce.broker.handlers.{route.name}")
        head, _, rest = (module.__doc__ or "").partition(":")
        behaviour = rest.partition(".")[2] if "\n\n" not in rest else rest.partition("\n\n")[2]
        first = re.split(r"(?<=[.!?])\s", " ".join(behaviour.split()), maxsplit=1)[0]
        rows.append(f"| {head} | {route.api_key} | {route.min_version}–{route.max_version} | {first} |")
    return "\n".join(rows)


def settings_table(settings: Iterable[Setting]) -> str:
    rows = ["| name | type | default | |", "|---|---|---|---|"]
    for setting in settings:
        default = {MAX_LONG: "no limit", MAX_INT: "no limit", None: "unset"}.get(setting.default)  # type: ignore[arg-type]
        shown = default or text_of(setting.default)
        rows.append(f"| `{setting.name}` | {setting.kind.name.lower()} | {shown} | {setting.doc} |")
    return "\n".join(rows)


def updated(page: str) -> str:
    """The page with its three tables as they are now."""
    tables = {"apis": api_table(), "broker settings": settings_table(BROKER), "topic settings": settings_table(TOPIC)}
    for name, table in tables.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        page = between.sub(lambda found, table=table: f"{found[1]}{table}{found[2]}", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text()))
