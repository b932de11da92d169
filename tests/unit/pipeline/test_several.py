"""Several pipelines in one process: what they cannot have apart is refused, and one that fails is not the end of all."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import atonce
from atonce.delivery.metrics import Numbers
from atonce.delivery.started import Started
from atonce.errors import RefusedError, UsageError
from atonce.guarantee import Guarantee
from atonce.several import Together, refuse_together


class FakePipeline:
    """Ends when it is told to, and fails to start, or fails later, when it is made so."""

    level = Guarantee.EFFECTIVELY_ONCE

    def __init__(self, name: str, *, refused: str = "", fails: str = "") -> None:
        self.name, self.refused, self.fails = name, refused, fails
        self.said: list[str] = []
        self.over = threading.Event()
        if fails:
            self.over.set()

    def say(self, text: str) -> None:
        self.said.append(text)

    def started(self, numbers: Numbers, available_now: bool, checked: Any) -> Started:
        if self.refused:
            raise UsageError(self.refused)
        checked(self.name)
        run: Any = SimpleNamespace(
            job=SimpleNamespace(name=self.name, source=None), wait=self._wait, stop=self.over.set
        )
        return Started(run, numbers, lambda: None)

    def _wait(self) -> None:
        assert self.over.wait(30)
        if self.fails:
            raise RefusedError(self.fails)


def together(*pipelines: Any, **options: Any) -> Together:
    made = Together(pipelines, **options)
    made.start([])
    return made


def test_one_that_fails_leaves_the_others_running_and_is_told_at_once_and_raised_at_the_end() -> None:
    bad, good = FakePipeline("bad", fails="row 7 is too large"), FakePipeline("good")
    both = together(bad, good)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(RefusedError, match="row 7 is too large"):
            both.wait()
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert both.started[0].ended(30) and both.started[1].status == "running"
    good.over.set()
    waiting.join(30)
    assert ended.is_set() and bad.said == ["bad failed: row 7 is too large"]


def test_one_that_fails_stops_the_others_when_they_are_to_stop_together() -> None:
    both = together(FakePipeline("bad", fails="row 7"), FakePipeline("good"), stop_together=True)
    with pytest.raises(RefusedError, match="row 7"):
        both.wait()
    assert both.started[1].status == "stopped"


def test_one_that_is_refused_leaves_the_others_running() -> None:
    good = FakePipeline("good", fails="")
    both = together(FakePipeline("bad", refused="no topic"), good)
    assert [each.name for each in both.started] == ["good"]
    good.over.set()
    with pytest.raises(UsageError, match="no topic"):
        both.wait()


def test_several_failures_are_raised_as_one_line() -> None:
    both = together(FakePipeline("one", fails="first"), FakePipeline("two", fails="second"))
    with pytest.raises(
        RefusedError, match=r"2 of 2 pipelines failed\. (one: first; two: second|two: second; one: first)"
    ):
        both.wait()


def test_what_they_cannot_have_apart_is_refused() -> None:
    def made(name: str, **options: Any) -> atonce.Pipeline:
        return atonce.Pipeline(name, **options)

    with pytest.raises(UsageError, match="two of the pipelines are named 'a'"):
        refuse_together([made("a"), made("a")])
    with pytest.raises(UsageError, match=r"'a' has master local\[1\] and 'b' has local\[2\]"):
        refuse_together([made("a", master="local[1]"), made("b", master="local[2]")])
    with pytest.raises(UsageError, match=r"'a' sets spark.x to 1 and 'b' to 2"):
        refuse_together([made("a", spark={"spark.x": "1"}), made("b", spark={"spark.x": "2"})])
    with pytest.raises(UsageError, match="no pipeline"):
        atonce.run()
