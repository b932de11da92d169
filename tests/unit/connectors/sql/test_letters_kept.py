"""Dead letters in their table when records are delivered again, and when their topic was made again."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from atonce.connectors.sql.beside.letters import Keeping, LetterTable, read
from atonce.delivery.contract import Batch
from atonce.delivery.letters import Kept, Original, Place
from atonce.delivery.progress import Plan
from atonce.errors import RefusedError

TYPES = {"text": "TEXT", "int": "INTEGER", "bytes": "BLOB", "time": "TEXT"}


class Log:
    """A topic whose record at offset i has the value `NAME i`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def originals(self, places: Sequence[Place]) -> Mapping[Place, Original]:
        return {each: Original(key=None, value=f"{self._name} {each[2]}".encode()) for each in places}


@pytest.fixture
def keeping() -> Keeping:
    connection = sqlite3.connect(":memory:")
    table = LetterTable(name='"letters"', types=TYPES)
    connection.execute(table.create())
    return Keeping(
        table=table,
        names=("p", "out"),
        source=Log("first"),
        run=connection.execute,
        many=connection.executemany,
    )


def batch(start: int, end: int, *, first: bool = False) -> Batch:
    plan = Plan(query_id="q", batch_id=start, start={"t/0": start}, end={"t/0": end})
    return Batch(df=None, plan=plan, again_from={"t/0": start, "t/1": 0} if first else None)


def bad(*offsets: int) -> list[dict[str, Any]]:
    return [{"topic": "t", "partition": 0, "offset": offset, "index": 0, "reason": "bad"} for offset in offsets]


def waiting(keeping: Keeping) -> list[tuple[int, int]]:
    """Offset and attempts of the letters that wait."""
    found: list[Kept] = [read(row) for row in keeping.run(keeping.table.select(), ("p", "out")).fetchall()]
    return [(each.letter.place[2], each.attempts) for each in found if each.replayed_at is None]


def delivered(keeping: Keeping, what: Batch, *offsets: int) -> None:
    keeping.take_back(what)
    keeping.keep(what, bad(*offsets))


def test_letters_from_where_the_pipeline_goes_on_are_taken_back_and_those_before_stay(keeping: Keeping) -> None:
    delivered(keeping, batch(0, 10, first=True), 1, 5, 7)
    delivered(keeping, batch(5, 10, first=True), 7)
    assert waiting(keeping) == [(1, 1), (7, 2)], "5 is delivered now, 7 was put aside again"
    delivered(keeping, batch(10, 20), 12)
    assert waiting(keeping) == [(1, 1), (7, 2), (12, 1)], "a later batch of the same claim takes nothing back"


def test_batch_that_runs_again_without_a_claim_in_between_leaves_its_letters_as_they_are(keeping: Keeping) -> None:
    delivered(keeping, batch(0, 10), 1, 5)
    delivered(keeping, batch(0, 10), 1, 5)
    assert waiting(keeping) == [(1, 1), (5, 1)]


def test_letters_of_a_topic_that_was_made_again_stay_and_no_letter_takes_their_place(keeping: Keeping) -> None:
    delivered(keeping, batch(0, 10, first=True), 1)
    anew = Keeping(table=keeping.table, names=keeping.names, source=Log("second"), run=keeping.run, many=keeping.many)
    delivered(anew, batch(0, 10, first=True), 2)
    assert waiting(anew) == [(1, 1), (2, 1)]
    with pytest.raises(RefusedError, match=r"p/out/t/0/1/0 is there already, of another record"):
        delivered(anew, batch(0, 10, first=True), 1)
