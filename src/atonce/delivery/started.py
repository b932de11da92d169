"""A started pipeline, as `Pipeline.start` gives it. It stays the same while its query is started again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from atonce.delivery.metrics import Numbers, Snapshot
from atonce.delivery.run import Run

Status = Literal["running", "waiting", "in doubt", "stopped", "failed"]
_REFRESH_S = 0.5


def unseen(started: Started) -> Callable[[], None]:
    """Shows nothing."""
    return lambda: None


class Started:
    """Delivers in the background until it is stopped, drained, or meets an error that waiting cannot mend."""

    def __init__(
        self,
        run: Run,
        numbers: Numbers,
        close: Callable[[], None],
        show: Callable[[Started], Callable[[], None]] = unseen,
    ) -> None:
        self.name = run.job.name
        self.source = run.job.source
        self._run = run
        self.numbers = numbers
        self._close = close
        self._show = show
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._follow, name=f"atonce-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """Finish or abort the running batch and end. Returns at once; `wait` returns when it has ended."""
        self._run.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it has ended; False if it has not within `timeout_s`. Raises what `run` would raise.

        Ctrl-C (in a notebook: interrupt) stops the pipeline, and is its ordinary end.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        refresh = self._show(self)
        try:
            while not self._ended.wait(_left(deadline)):
                refresh()
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        except KeyboardInterrupt:
            self.stop()
            self._ended.wait()
        refresh()
        if self._failure is not None:
            raise self._failure
        return True

    def ended(self, within_s: float | None = None) -> bool:
        """Whether it has ended; waits for that `within_s` seconds (None: as long as it takes), and raises nothing."""
        return self._ended.wait(within_s)

    @property
    def status(self) -> Status:
        """running; waiting, for trouble to pass; in doubt, while the answer to a commit is missing (since when says
        `progress.in_doubt_since`); stopped, also when all there was is delivered; failed."""
        if self._ended.is_set():
            return "failed" if self._failure is not None else "stopped"
        now = self.progress
        return "in doubt" if now.in_doubt_since is not None else "waiting" if now.trouble else "running"

    @property
    def progress(self) -> Snapshot:
        """Batches, rows, rows per second, restarts and the like, since it was started."""
        return self.numbers.snapshot()

    def exception(self) -> BaseException | None:
        """Why it failed, in one line, as `run` would raise it; None while it runs and when it ended well."""
        return self._failure

    @property
    def query(self) -> Any:
        """Spark's StreamingQuery of this moment: another one after a restart."""
        return self._run.query

    def __repr__(self) -> str:
        now = self.progress
        words = f"{self.name} ({now.level}) {self.status}: {now.batches:,} batches, {now.rows:,} rows"
        if not self._ended.is_set():
            words += f", {now.rows_per_s:,.0f} rows/s"
        if now.lag is not None:
            words += f", lag {now.lag:,}"
        if now.restarts:
            words += f", {now.restarts} restarts"
        trouble = str(self._failure) if self._failure is not None else now.trouble
        return f"{words}. {trouble}" if trouble else words

    def _follow(self) -> None:
        try:
            try:
                self._run.wait()
            finally:
                self._close()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()


def _left(deadline: float | None) -> float:
    return _REFRESH_S if deadline is None else max(0.0, min(_REFRESH_S, deadline - time.monotonic()))
