"""The record that cannot be delivered is found by reading the batch again in halves."""

from __future__ import annotations

from atonce.delivery.locate import locate
from atonce.delivery.progress import Plan


def test_the_bad_record_is_found_in_few_steps() -> None:
    asked: list[tuple[str, int, int]] = []

    def fails(place: str, start: int, end: int) -> bool:
        asked.append((place, start, end))
        return place == "t/1" and start <= 777 < end

    plan = Plan(query_id="q", batch_id=0, start={"t/0": 5, "t/1": 100}, end={"t/0": 5000, "t/1": 2000})
    assert locate(plan, fails) == ("t/1", 777)
    assert len(asked) < 16


def test_a_batch_that_fails_nowhere_on_its_own_has_no_place() -> None:
    plan = Plan(query_id="q", batch_id=0, start={"t/0": 0}, end={"t/0": 10})
    assert locate(plan, lambda *_: False) is None
    assert locate(Plan(query_id="q", batch_id=0, start=None, end=None), lambda *_: True) is None
