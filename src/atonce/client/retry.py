"""Trying again: one loop, one policy (`errors.is_retriable`), always within a limit of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from atonce.backoff import Backoff
from atonce.client.errors import is_retriable
from atonce.errors import AtOnceError

T = TypeVar("T")

FIRST_PAUSE_MS = 10
LONGEST_PAUSE_MS = 500


def retry(
    attempt: Callable[[], T],
    *,
    limit_ms: int,
    on_retry: Callable[[AtOnceError], None] | None = None,
    first_pause_ms: float = FIRST_PAUSE_MS,
) -> T:
    """Call `attempt` until it succeeds or fails for good. After `limit_ms` its last error is raised as it is."""
    backoff = Backoff(first_pause_ms / 1000, LONGEST_PAUSE_MS / 1000, limit_ms / 1000, growth=1.6)
    while True:
        try:
            return attempt()
        except AtOnceError as error:
            if not is_retriable(error) or backoff.over:
                raise
            if on_retry is not None:
                on_retry(error)
        backoff.wait()
