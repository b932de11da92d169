"""What makes two dead letters one, and from where their originals come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atonce.delivery.letters import NOWHERE, WHOLE, Letter, Original, Place, letters
from atonce.delivery.progress import Plan

PLAN = Plan(query_id="q", batch_id=0, start={"t/0": 10}, end={"t/0": 20})


class Log:
    def __init__(self) -> None:
        self.asked: list[Place] = []

    def originals(self, places: Sequence[Place]) -> Mapping[Place, Original]:
        self.asked += places
        return {place: Original(key=None, value=b"v") for place in places}


def told(offset: int | None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": offset, "index": index, "reason": "why", "row": "{}", **more}


def found(*rows: dict[str, Any], source: object = None) -> list[Letter]:
    return [each for some in letters(rows, PLAN, source) for each in some]


def test_a_place_and_an_index_are_one_letter_however_often_they_are_told() -> None:
    kept = found(told(12), told(11, 1), told(11, WHOLE), told(12, reason="again"), told(11, 1))
    assert [(each.place[2], each.index) for each in kept] == [(11, WHOLE), (11, 1), (12, 0)]
    assert kept[-1].reason == "why"


def test_originals_are_asked_for_what_the_batch_has_read_and_nothing_else() -> None:
    log = Log()
    kept = found(told(12), told(9), told(20), told(12, topic="another"), told(None), source=log)
    assert log.asked == [("t", 0, 12)]
    assert [each.place for each in kept if each.original is not None] == [("t", 0, 12)]


def test_equal_rows_without_a_place_are_letters_of_their_own_and_the_same_again() -> None:
    rows = [told(None), told(None), told(None, row='{"a": 1}')]
    first, again = found(*rows), found(*rows)
    assert {each.place for each in first} == {NOWHERE}
    assert len({each.index for each in first}) == 3
    assert first == again
