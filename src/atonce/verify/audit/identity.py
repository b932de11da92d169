"""How one output record is told from another: its whole content, a field of it, or what a pattern finds in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from atonce.errors import UsageError


@dataclass(frozen=True, slots=True)
class Out:
    """One output record or row, from wherever it was read."""

    key: bytes | None
    value: bytes
    """A row is its columns as JSON."""
    where: str
    """topic/partition@offset, or table row; for people."""
    partition: int = -1
    offset: int = -1
    seen_at: float = 0.0
    absent: bool = False
    """Its value is null."""
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    time_ms: int | None = None
    """The record's own time; None: the time of sending."""


Identify = Callable[[Out], str]


def identify(spec: str) -> Identify:
    """`whole`, a JSON path (`$.order.id`), or a regular expression (its first group, or all of it)."""
    kind, _, rest = spec.partition(":")
    if spec == "whole":
        return _whole
    if kind == "jsonpath" and rest:
        return _json_path(rest)
    if spec.startswith("$"):
        return _json_path(spec)
    return _pattern(rest if kind == "regex" and rest else spec)


def _whole(out: Out) -> str:
    key = "" if out.key is None else out.key.decode(errors="backslashreplace")
    return f"{key}={out.value.decode(errors='backslashreplace')}"


def _json_path(path: str) -> Identify:
    steps = [step for step in re.split(r"[.\[\]]+", path.removeprefix("$")) if step]
    if not steps:
        raise UsageError(f"--id {path!r}: a JSON path names a field, such as $.order.id or $.lines[0].sku")

    def at(out: Out) -> str:
        try:
            value: Any = json.loads(out.value)
            for step in steps:
                value = value[step] if isinstance(value, Mapping) else value[int(step)]
        except (ValueError, KeyError, IndexError, TypeError):
            return f"(no {path})"
        return json.dumps(value, sort_keys=True)

    return at


def _pattern(pattern: str) -> Identify:
    try:
        compiled = re.compile(pattern.encode())
    except re.error as error:
        raise UsageError(
            f"--id {pattern!r} is neither whole, nor a JSON path ($.field), nor a regular expression: {error}"
        ) from error

    def at(out: Out) -> str:
        found = compiled.search(out.value)
        if not found:
            return f"(no {pattern})"
        return (found.group(1) if compiled.groups else found.group(0)).decode(errors="backslashreplace")

    return at
