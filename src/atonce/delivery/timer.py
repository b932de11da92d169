"""Progress on a timer, for level `none`: what auto-commit does (S3, S4), with commits that never move back (S20)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from atonce.delivery.progress import Progress
from atonce.errors import RetriableError

AUTO_COMMIT_INTERVAL_S = 5.0


class TimedCommits:
    """Commits the newest progress every `interval_s`; one that failed is repeated while nothing newer succeeded."""

    def __init__(self, commit: Callable[[Progress], None], interval_s: float = AUTO_COMMIT_INTERVAL_S) -> None:
        self._commit = commit
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._waiting: list[Progress] = []
        self._done = -1
        self._closing = threading.Event()
        self.failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def submit(self, progress: Progress) -> None:
        if self.failure is not None:
            raise self.failure
        with self._lock:
            self._waiting.append(progress)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="atonce-auto-commit", daemon=True)
                self._thread.start()

    def tick(self) -> None:
        """What the timer does when it fires."""
        with self._lock:
            newest = max(self._waiting, key=lambda each: each.sequence, default=None)
            self._waiting.clear()
        if newest is None or newest.sequence <= self._done:
            return
        try:
            self._commit(newest)
        except RetriableError:
            with self._lock:
                self._waiting.append(newest)  # the next tick takes it, or something newer
        else:
            self._done = newest.sequence

    def close(self) -> None:
        """Stop the timer after one last commit, as a consumer's close() does."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.tick()

    def _run(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self.tick()
            except Exception as error:
                self.failure = error  # raised to the pipeline with its next batch
                return
