"""Whether Spark ran a stage again: asked only where it can have, and what is not known is taken for yes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atonce.errors import AttemptAborted
from atonce.spark.stage_retries import SETTING, StageRetries


class Told:
    """A Scala option."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def isEmpty(self) -> bool:
        return self._value is None

    def get(self) -> Any:
        return self._value


def spark(master: str, setting: str | None, attempts: dict[int, int | None], busy: bool = False) -> Any:
    """As much of a session as is looked at: one job whose stages are at these attempts."""

    def wait() -> None:
        if busy:
            raise TimeoutError("the bus is busy")

    def stage(number: int) -> Told:
        attempt = attempts[number]
        return Told(None if attempt is None else SimpleNamespace(currentAttemptId=lambda: attempt))

    tracker = SimpleNamespace(
        getJobIdsForTag=lambda tag: [7] if tag == "mine" else [],
        getJobInfo=lambda job: Told(SimpleNamespace(stageIds=lambda: list(attempts))),
        getStageInfo=stage,
    )
    scala = SimpleNamespace(listenerBus=lambda: SimpleNamespace(waitUntilEmpty=wait), statusTracker=lambda: tracker)
    context = SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: scala))
    return SimpleNamespace(sparkContext=context, conf={SETTING: setting} if setting else {})


def test_stage_that_was_run_again_is_seen() -> None:
    assert not StageRetries(spark("spark://one:7077", "1", {1: 0, 2: 0})).seen("mine")
    found = StageRetries(spark("spark://one:7077", "1", {1: 0, 2: 1}))
    assert found.seen("mine")
    assert not found.seen("another's")
    with pytest.raises(AttemptAborted, match="ran a stage of this batch again"):
        found.refuse("mine")


def test_what_spark_does_not_tell_is_taken_for_yes() -> None:
    assert StageRetries(spark("local[2]", None, {1: None})).seen("mine")
    assert StageRetries(spark("yarn", None, {1: 0}, busy=True)).seen("mine")


def test_nothing_is_asked_where_no_executor_can_be_lost_and_no_stage_has_a_second_attempt() -> None:
    assert not StageRetries(spark("local[2]", "1", {1: 1}, busy=True)).seen("mine")
    assert StageRetries(spark("local[2]", "4", {1: 1})).seen("mine")
