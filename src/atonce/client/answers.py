"""Answers that say less than was asked. Silence is no answer: it is asked again, within the caller's limit of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atonce.client.errors import TryAgain


def left_out(what: str) -> TryAgain:
    """`what` says what was asked of whom."""
    return TryAgain(f"{what}: the broker's answer leaves it out. Next: it is asked again, within a limit.")


def only(entries: Sequence[Any] | None, what: str) -> Any:
    """The one entry of an answer to a question about one thing."""
    if not entries:
        raise left_out(what)
    return entries[0]
