"""Tables of dead letters of every kind keep to one behaviour: what waits, what counts, what goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from atonce.connectors.lake.delta.letters import DeltaLetters
from atonce.connectors.lake.iceberg.letters import IcebergLetters
from atonce.connectors.lake.table import LetterShelf, PutBy
from atonce.delivery.letters import Kept, Letter, Original
from tests.contract.connectors.systems import IcebergSystem

SHELVES: dict[str, Callable[[Path], LetterShelf]] = {
    "delta": lambda scratch: DeltaLetters(scratch / "letters", "out"),
    "iceberg": lambda scratch: IcebergLetters(IcebergSystem(scratch).catalog, "shop.letters", "out"),
}


@pytest.fixture(params=SHELVES)
def shelf(request: pytest.FixtureRequest, scratch: Path) -> Any:
    return SHELVES[request.param](scratch)


def letter(offset: int, reason: str = "bad") -> Letter:
    original = Original(key=b"k", value=b"\xff", headers=(("h", None),), timestamp_ms=1_768_000_000_123)
    return Letter(place=("t", 0, offset), index=0, reason=reason, row='{"a": 1}', original=original)


def by(number: int, sequence: int, owner: str = "orders", instance: str = "one") -> PutBy:
    return PutBy(owner=owner, number=number, instance=instance, sequence=sequence)


def told(shelf: LetterShelf) -> list[tuple[int, str, int, bool]]:
    return [
        (each.letter.place[2], each.letter.reason, each.attempts, each.replayed_at is not None)
        for each in shelf.kept("orders")
    ]


def test_a_letter_counts_once_its_commit_is_confirmed_and_waits_as_it_was(shelf: LetterShelf) -> None:
    shelf.confirm("orders", "one", 1)
    shelf.drop("orders", "orders", 5)
    assert told(shelf) == [], "to ask and to confirm nothing makes nothing"
    shelf.add([letter(1), letter(2)], "orders", 0, by(10, 1))
    assert told(shelf) == []
    shelf.confirm("orders", "another", 1)
    shelf.confirm("orders", "one", 1)
    assert told(shelf) == [(1, "bad", 1, False), (2, "bad", 1, False)]
    [kept, _] = shelf.kept("orders")
    assert (kept.letter, kept.batch_id) == (letter(1), 0)
    shelf.add([letter(1, "again")], "orders", 1, by(11, 2))
    shelf.confirm("orders", "one", 2)
    assert told(shelf)[0] == (1, "bad", 1, False), "one that waits stays as it is"
    assert shelf.kept("others") == []


def test_what_no_commit_can_confirm_any_more_goes_and_may_come_again(shelf: LetterShelf) -> None:
    shelf.add([letter(1), letter(2)], "orders", 0, by(10, 1))
    shelf.drop("orders", "orders", 10)
    shelf.confirm("orders", "one", 1)
    assert [row[3] for row in told(shelf)] == [False, False], "its own number is not below itself"
    shelf.add([letter(3)], "orders", 0, by(11, 2))
    shelf.drop("orders", "orders", 12)
    assert told(shelf)[2] == (3, "bad", 1, True)
    shelf.add([letter(3, "again")], "orders", 1, by(13, 3))
    shelf.confirm("orders", "one", 3)
    assert told(shelf)[2] == (3, "again", 2, False)


def test_what_became_of_a_letter_is_written_down_except_on_those_put_aside_since(shelf: LetterShelf) -> None:
    shelf.add([letter(1), letter(2)], "orders", 0, by(10, 1))
    shelf.confirm("orders", "one", 1)
    now = datetime.now(UTC)
    done: list[Kept] = [replace(each, replayed_at=now, attempts=2) for each in shelf.kept("orders")]
    shelf.settle(done, "orders", "orders", 10)
    assert [row[3] for row in told(shelf)] == [False, False]
    shelf.settle(done[:1], "orders", "orders", 11)
    shelf.settle(done[1:], "orders")
    assert told(shelf) == [(1, "bad", 2, True), (2, "bad", 2, True)]
