"""Progress on a timer, for the level `none`: recorded whenever the timer fires, whether or not the output is written.

Every hand-over gets a growing sequence number, and only the newest is ever sent; a retry of an older one therefore
cannot move progress back (S20).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from atonce.errors import ReplacedError, RetriableError
from atonce.ledger.progress import Progress

DEFAULT_INTERVAL_S = 5.0
"""Kafka's `auto.commit.interval.ms`."""

_log = logging.getLogger("atonce")


class ProgressTimer:
    """Calls `record(progress, sequence)` from a thread of its own, at most every `interval_s`."""

    def __init__(self, record: Callable[[Progress, int], None], interval_s: float = DEFAULT_INTERVAL_S) -> None:
        self._record = record
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._pending: tuple[Progress, int] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._replaced: ReplacedError | None = None

    def hand_over(self, progress: Progress, sequence: int) -> None:
        """Let the next firing record it. Raises `ReplacedError` if an earlier firing found us replaced."""
        if self._replaced is not None:
            raise self._replaced
        with self._lock:
            if self._pending is None or self._pending[1] < sequence:
                self._pending = (progress, sequence)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="atonce-progress-timer", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Record what is pending now. Raises what the recording raises."""
        with self._sending:
            with self._lock:
                pending = self._pending
            if pending is None:
                return
            self._record(*pending)
            with self._lock:
                if self._pending == pending:
                    self._pending = None

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.flush()
            except ReplacedError as error:
                self._replaced = error
                return
            except RetriableError as error:
                _log.warning("progress was not recorded, the next firing tries again: %s", error)
            except Exception as error:
                _log.error("progress could not be recorded: %s", error)
