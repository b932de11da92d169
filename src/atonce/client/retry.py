"""Trying again: one loop, one policy (`errors.is_retriable`), always within a limit of time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

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
    deadline = time.monotonic() + limit_ms / 1000
    pause_ms = first_pause_ms
    while True:
        try:
            return attempt()
        except AtOnceError as error:
            if not is_retriable(error) or time.monotonic() + pause_ms / 1000 > deadline:
                raise
            if on_retry is not None:
                on_retry(error)
        time.sleep(pause_ms / 1000 * random.uniform(0.8, 1.2))
        pause_ms = min(LONGEST_PAUSE_MS, pause_ms * 1.6)
