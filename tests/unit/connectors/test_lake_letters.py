"""Dead letters in a table of their own: only those count whose commit is in the output, whoever writes late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from atonce.connectors.lake.aside import LakeLetters
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.letters import Original, Place
from atonce.delivery.progress import Plan, Progress
from atonce.guarantee import Guarantee

pytest.importorskip("deltalake")


class Log:
    def originals(self, places: Sequence[Place]) -> Mapping[Place, Original]:
        return {each: Original(key=None, value=f"record {each[2]}".encode()) for each in places}


def driver(folder: Path, epoch: int, recorded: Progress | None = None) -> LakeLetters:
    """One that has just claimed the pipeline, and found this."""
    from atonce.connectors.lake.delta.letters import DeltaLetters

    identity = Identity(name="p", instance=f"i{epoch}", guarantee=Guarantee.EFFECTIVELY_ONCE, source=Log())  # type: ignore[arg-type]
    made = LakeLetters(DeltaLetters(folder / "letters", "out"), identity)
    made.claimed(epoch << 32, recorded)
    return made


def put_aside(by: LakeLetters, epoch: int, delivery: int, what: Batch, *offsets: int) -> Progress:
    """What its commit would record."""
    progress = Progress(instance=f"i{epoch}", query_id="q", batch_id=delivery, positions={}, sequence=delivery)
    by.put_aside(what, bad(*offsets), (epoch << 32) + delivery, progress)
    return progress


def batch(start: int, end: int, *, first: bool = False) -> Batch:
    plan = Plan(query_id="q", batch_id=start, start={"t/0": start}, end={"t/0": end})
    return Batch(df=None, plan=plan, again_from={"t/0": start} if first else None)


def bad(*offsets: int) -> list[dict[str, Any]]:
    return [{"topic": "t", "partition": 0, "offset": offset, "index": 0, "reason": "bad"} for offset in offsets]


def waiting(folder: Path) -> list[int]:
    from atonce.connectors.lake.delta.letters import DeltaLetters

    kept = DeltaLetters(folder / "letters", "out").kept("p")
    return [each.letter.place[2] for each in kept if each.replayed_at is None]


def test_letter_counts_when_its_commit_is_in_also_if_that_is_told_by_the_next_driver(tmp_path: Path) -> None:
    first = driver(tmp_path, 1)
    put_aside(first, 1, 1, batch(0, 10, first=True), 1)
    assert waiting(tmp_path) == []
    first.committed()
    assert waiting(tmp_path) == [1]
    last = put_aside(first, 1, 2, batch(10, 20), 12)  # committed, and then the driver dies
    driver(tmp_path, 2, last)
    assert waiting(tmp_path) == [1, 12]


def test_letters_of_a_batch_that_was_never_committed_go(tmp_path: Path) -> None:
    put_aside(driver(tmp_path, 1), 1, 1, batch(0, 10, first=True), 1, 5)
    second = driver(tmp_path, 2)
    put_aside(second, 2, 1, batch(0, 10, first=True), 5)
    second.committed()
    assert waiting(tmp_path) == [5], "1 is delivered: the transform was mended"


def test_driver_that_was_replaced_neither_adds_a_letter_nor_takes_one_back(tmp_path: Path) -> None:
    zombie, owner = driver(tmp_path, 1), driver(tmp_path, 2)
    put_aside(owner, 2, 1, batch(0, 10, first=True), 5)
    put_aside(zombie, 1, 1, batch(0, 10, first=True), 1, 5)  # and is refused when it commits
    owner.committed()
    put_aside(zombie, 1, 2, batch(0, 10, first=True), 1)
    assert waiting(tmp_path) == [5]
    driver(tmp_path, 3)
    assert waiting(tmp_path) == [5]
