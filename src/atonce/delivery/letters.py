"""Dead letters: what cannot be delivered, kept with the input record that it comes from.

A letter is known by its place: topic, partition and offset of the record, and the index of the row among those that the
record gives (-1: the record as a whole, which never became a row). So a batch that runs again, a replay and a reset all
find the letter that is there. Rows that come of several records (aggregates, joins) have no place: equal ones are one.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from atonce.delivery.progress import Plan

ORIGIN = ("atonce_topic", "atonce_partition", "atonce_offset", "atonce_index")
"""Columns that travel beside a row, from the source to the sink's tasks, and are never stored: where it comes from."""
WHOLE = -1
"""The index of a record that never became a row."""
NOWHERE = ("", -1, -1)
_AT_ONCE = 500
"""Originals that are in the driver's memory at a time."""

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The input record as it was."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    place: Place
    index: int
    reason: str
    row: str | None = None
    """The output row as JSON, where there is one."""
    original: Original | None = None
    """None where the input cannot be read by place, or has lost the record since."""

    def name(self, pipeline: str, output: str) -> str:
        """The letter's identity as one line of text."""
        topic, partition, offset = self.place
        return f"{pipeline}/{output}/{topic}/{partition}/{offset}/{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A letter as it lies with the output."""

    letter: Letter
    batch_id: int | None = None
    put_aside_at: datetime | None = None
    attempts: int = 1
    replayed_at: datetime | None = None


@runtime_checkable
class HasLetters(Protocol):
    """A sink that can show its dead letters."""

    def kept_letters(self, pipeline: str) -> list[Kept]:
        """By place; none where nothing was put aside yet."""


@runtime_checkable
class ReplaysLetters(Protocol):
    """An open sink whose letters share a transaction with its output."""

    def claim(self) -> Any: ...

    def deliver_letters(self, batch: Any, progress: Any, chosen: Sequence[Kept]) -> tuple[int | None, int]:
        """Rows of these letters and the marks on them, both or neither: rows written, and letters that failed again."""


@runtime_checkable
class KeepsOriginals(Protocol):
    """A source that can give single records again."""

    def originals(self, places: Sequence[Place]) -> Mapping[Place, Original]: ...


def letters(found: Sequence[Mapping[str, Any]], plan: Plan, source: object) -> Iterator[list[Letter]]:
    """What tasks and databases told of this batch, each once, with the originals; a few hundred at a time, by place."""
    once: dict[tuple[Place, int], Letter] = {}
    for each in found:
        letter = _letter(each, once)
        once.setdefault((letter.place, letter.index), letter)
    left = iter(sorted(once.values(), key=lambda letter: (letter.place, letter.index)))
    while some := list(islice(left, _AT_ONCE)):
        known: Mapping[Place, Original] = {}
        if isinstance(source, KeepsOriginals):
            known = source.originals(sorted({each.place for each in some if _is_of(plan, each.place)}))
        yield [_with(each, known.get(each.place)) for each in some]


def taken_back(waiting: Sequence[Letter], source: object) -> list[Letter]:
    """Of letters whose places are delivered again, those whose record is still the one that is there. Of a topic that
    was made again nothing is: the letters of the old one stay."""
    if not isinstance(source, KeepsOriginals):
        return list(waiting)
    found: list[Letter] = []
    left = iter(sorted(waiting, key=lambda letter: (letter.place, letter.index)))
    while some := list(islice(left, _AT_ONCE)):
        known = source.originals(sorted({each.place for each in some}))
        found += [each for each in some if each.original is None or known.get(each.place) == each.original]
    return found


def split(partition: str) -> tuple[str, int] | None:
    """`orders/7` as topic and partition; None for a position of another kind."""
    topic, _, number = partition.rpartition("/")
    return (topic, int(number)) if topic and number.isdigit() else None


def headers_text(original: Original) -> str:
    """Headers in a column of text: a list of [name, base64 or null]."""
    found = [[name, None if value is None else base64.b64encode(value).decode()] for name, value in original.headers]
    return json.dumps(found)


def headers_of(text: str) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else base64.b64decode(value)) for name, value in json.loads(text))


def _letter(told: Mapping[str, Any], taken: Mapping[tuple[Place, int], Letter]) -> Letter:
    row, reason = told.get("row"), str(told["reason"])
    if told.get("offset") is not None:
        place = (str(told.get("topic") or ""), _number(told.get("partition")), _number(told["offset"]))
        return Letter(place=place, index=int(told.get("index") or 0), reason=reason, row=row)
    number = 0
    while (NOWHERE, index := _digest(f"{number} {row} {reason if row is None else ''}")) in taken:
        number += 1  # equal rows of one batch are as many letters
    return Letter(place=NOWHERE, index=index, reason=reason, row=row)


def _is_of(plan: Plan, place: Place) -> bool:
    """Columns that only look like a place name records that the batch never read."""
    partition = f"{place[0]}/{place[1]}"
    return (plan.start or {}).get(partition, 0) <= place[2] < (plan.end or {}).get(partition, 0)


def _number(value: Any) -> int:
    return -1 if value is None else int(value)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]) >> 1


def _with(letter: Letter, original: Original | None) -> Letter:
    return Letter(place=letter.place, index=letter.index, reason=letter.reason, row=letter.row, original=original)
