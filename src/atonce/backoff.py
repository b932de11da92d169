"""Waiting for passing trouble: pauses that grow, each a little different, within a limit of time."""

from __future__ import annotations

import random
import threading
import time


class Backoff:
    """Those who wait together must not come back together, so no pause is exactly as long as it was meant."""

    def __init__(self, first_s: float, longest_s: float, within_s: float = float("inf"), growth: float = 2.0) -> None:
        self.pause_s = first_s
        """About how long the next pause is."""
        self._longest_s, self._growth = longest_s, growth
        self._deadline = time.monotonic() + within_s

    @property
    def over(self) -> bool:
        """The next pause would end behind the limit."""
        return time.monotonic() + self.pause_s > self._deadline

    def wait(self, stopped: threading.Event | None = None) -> None:
        """Returns sooner when `stopped` is set."""
        pause_s = self.pause_s * random.uniform(0.8, 1.2)
        self.pause_s = min(self._longest_s, self.pause_s * self._growth)
        if stopped is None:
            time.sleep(pause_s)
        else:
            stopped.wait(pause_s)
