"""What `Pipeline.start` gives: one handle, however often the query behind it is started again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from atonce.delivery.events import Committed, Delivered, Retrying
from atonce.delivery.metrics import Numbers
from atonce.delivery.started import Started
from atonce.errors import RefusedError


class FakeRun:
    """A run that ends when it is told to."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.job = SimpleNamespace(name="orders", source=None)
        self.query = "the query"
        self.over = threading.Event()
        self.failure = failure

    def wait(self) -> None:
        assert self.over.wait(30)
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self.over.set()


def started(run: Any, close: Callable[[], None] = lambda: None, **options: Any) -> Started:
    return Started(run, Numbers("orders", "effectively-once"), close, **options)


def test_it_runs_until_it_is_stopped_and_is_then_closed() -> None:
    closed = threading.Event()
    handle = started(FakeRun(), closed.set)
    assert handle.status == "running" and not handle.wait(0.01)
    handle.stop()
    assert handle.wait(30) and closed.is_set()
    assert handle.status == "stopped" and handle.exception() is None


def test_it_tells_why_it_failed_as_often_as_it_is_asked() -> None:
    run = FakeRun(RefusedError("the row is too large"))
    handle = started(run)
    run.over.set()
    for _ in range(2):
        with pytest.raises(RefusedError, match="the row is too large"):
            handle.wait(30)
    assert handle.status == "failed" and str(handle.exception()) == "the row is too large"
    assert repr(handle).endswith("failed: 0 batches, 0 rows. the row is too large")


def test_progress_and_status_say_what_is_waited_for() -> None:
    handle = started(FakeRun())
    handle.numbers.on_event(Delivered(batch_id=1, rows=1_200))
    handle.numbers.on_event(Retrying(why="no leader", restarts=2))
    assert handle.status == "waiting" and handle.progress.restarts == 2 and handle.progress.rows == 1_200
    assert "1,200 rows" in repr(handle) and repr(handle).endswith("no leader")
    handle.stop()
    assert handle.wait(30)


def test_status_says_that_a_commit_is_in_doubt_and_progress_since_when() -> None:
    handle = started(FakeRun())
    handle.numbers.on_event(Retrying(why="the answer to a commit was lost", in_doubt=True))
    assert handle.status == "in doubt" and handle.progress.in_doubt_since is not None
    assert "in doubt: 0 batches" in repr(handle) and "rows/s" in repr(handle)
    handle.numbers.on_event(Committed(rows=1))
    assert handle.status == "waiting" and handle.progress.in_doubt_since is None
    handle.stop()
    assert handle.wait(30)


def test_an_interrupt_while_waiting_stops_the_pipeline_and_is_no_error() -> None:
    def interrupted(_: Started) -> Callable[[], None]:
        shown: list[int] = []

        def refresh() -> None:
            shown.append(1)
            if len(shown) == 1:
                raise KeyboardInterrupt

        return refresh

    handle = started(FakeRun(), show=interrupted)
    assert handle.wait()
    assert handle.status == "stopped"
