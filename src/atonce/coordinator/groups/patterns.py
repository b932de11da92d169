"""Patterns that clients send, in the dialect that Kafka takes them in (RE2), matched in time linear in the text.

Python's own `re` tries again and again on some patterns: `(a+)+$` against thirty letters would stop the whole broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2

from atonce.errors import UsageError

# What one pattern may become when compiled, and how long it may be: names of topics have 249 characters at most.
_MEMORY_BYTES = 1024 * 1024
_MOST_CHARACTERS = 4096


class BadPattern(UsageError):
    """No pattern, or one that is too large."""


class Pattern:
    """A pattern that a whole name has to match."""

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_CHARACTERS:
            raise BadPattern(f"a pattern of {len(text)} characters; at most {_MOST_CHARACTERS} are taken")
        options = re2.Options()
        options.max_mem = _MEMORY_BYTES
        options.log_errors = False
        try:
            self._compiled: Any = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
            raise BadPattern(reason) from error

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.matches(name)]


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Raises BadPattern. The same subscription is asked about with every heartbeat."""
    return Pattern(text)
