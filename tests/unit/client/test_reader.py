"""What a reader makes of time: answers come by script, and so does the clock."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from atonce.client.errors import Code, TryAgain
from atonce.client.read import reader
from atonce.client.read.ranges import Wanted
from atonce.client.read.reader import CUT_BELIEVED_MS, NO_PROGRESS_MS, Reader
from atonce.errors import DataLossError
from tests.unit.records.test_tally import batch

EMPTY: dict[str, Any] = {}
LOST: dict[str, Any] = {"error_code": Code.OFFSET_OUT_OF_RANGE}


class Scene:
    """A reader of offsets 0 to 19 whose clock moves only when the test, or one of its answers, says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.script: list[tuple[float, dict[str, Any]]] = []
        """(seconds that pass before it, how the answer differs from a good and empty one)."""
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None)
        monkeypatch.setattr(reader, "time", clock)
        monkeypatch.setattr(reader, "list_offsets", lambda _cluster, wanted, *_: dict.fromkeys(wanted, self.end))
        monkeypatch.setattr(reader.Proof, "begin", lambda *_: None)
        self.end = 20
        """Where the log ends, when it is asked for."""
        cluster = SimpleNamespace(forget_topic=lambda _: None)
        self.reader = Reader(cluster, Wanted("t", 0, 0, 20))  # type: ignore[arg-type]
        monkeypatch.setattr(self.reader, "_ask", self._answer)
        self.responses: Iterator[Any] = self.reader.responses()

    def _answer(self) -> Any:
        wait_s, answer = self.script.pop(0)
        self.now += wait_s
        good: dict[str, Any] = {"error_code": Code.NONE, "last_stable_offset": 20, "high_watermark": 20}
        rest: dict[str, Any] = {"records": b"", "diverging_epoch": None, "aborted_transactions": None}
        return SimpleNamespace(**{**good, **rest, **answer})


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def records(start: int, end: int) -> dict[str, Any]:
    return {"records": batch(start, end - 1, list(range(start, end)))}


def test_time_that_the_consumer_takes_is_none_of_the_brokers(scene: Scene) -> None:
    scene.script = [(0, records(0, 10)), (0, EMPTY), (0, records(10, 20))]
    next(scene.responses)
    scene.now += 10 * NO_PROGRESS_MS / 1000  # a task that writes what it got, slowly
    assert [asked for asked, *_ in scene.responses] == [10]


def test_time_without_progress_is_the_brokers(scene: Scene) -> None:
    scene.script = [(0, records(0, 10)), (0, EMPTY), (NO_PROGRESS_MS / 1000 + 1, EMPTY)]
    with pytest.raises(TryAgain, match="nothing to read at offset 10"):
        list(scene.responses)


def test_position_that_the_leader_has_again_is_no_longer_on_its_way_to_be_lost(scene: Scene) -> None:
    """A leader that is not up to date twice, with a good answer in between: two moments, not one long time."""
    scene.end = 5
    scene.script = [
        (0, records(0, 10)),
        (0, LOST),  # perhaps only its epoch is not known there
        (0, LOST),
        (1, EMPTY),
        (CUT_BELIEVED_MS / 1000 + 1, LOST),
        (1, records(10, 20)),
    ]
    assert [asked for asked, *_ in scene.responses] == [0, 10]


def test_position_that_stays_away_is_lost(scene: Scene) -> None:
    scene.end = 5
    scene.script = [(0, records(0, 10)), (0, LOST), (0, LOST), (CUT_BELIEVED_MS / 1000 + 1, LOST)]
    with pytest.raises(DataLossError, match="offsets 10 to 19 are wanted, but only 5 to 4 are there"):
        list(scene.responses)
