"""Records that break what is not careful: nulls and empties on either side, headers, odd text, one that is large."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from atonce.connectors.contract import Feature, InputRecord

LARGE_BYTES = 200_000
ODD_TEXT = "žluťoučký кот 猫 🐈 é e\u0301 \u202e \ufeff ß"
HEADERS: tuple[tuple[str, bytes | None], ...] = (
    ("trace", b"1"),
    ("trace", None),
    ("trace", b""),
    ("kočka", b"\xff\x00"),
    ("", b"no name"),
)


def _keyed(record: InputRecord, value: bytes | None) -> InputRecord:
    """Its number is in its key instead."""
    return replace(record, key=f"ao-{record.number:06d}".encode(), value=value)


def _with(record: InputRecord, name: str, text: str) -> InputRecord:
    fields = {**json.loads(record.text), name: text}
    return replace(record, value=json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())


def _invalid(record: InputRecord) -> InputRecord:
    return _keyed(record, b"\xc3\x28 \xff\xfe \xed\xa0\x80 " + f"ao-{record.number:06d}".encode())


MAKE: dict[Feature, Callable[[InputRecord], InputRecord]] = {
    Feature.NULL_KEY: lambda record: replace(record, key=None),
    Feature.EMPTY_KEY: lambda record: replace(record, key=b"", partition=0),
    Feature.HEADERS: lambda record: replace(record, headers=HEADERS[: 2 + record.number % 4]),
    Feature.EMPTY_VALUE: lambda record: _keyed(record, b""),
    Feature.NULL_VALUE: lambda record: _keyed(record, None),
    Feature.LARGE: lambda record: _with(record, "x", "x" * LARGE_BYTES),
    Feature.NON_ASCII: lambda record: _with(replace(record, key=f"{ODD_TEXT} {record.number}".encode()), "x", ODD_TEXT),
    Feature.INVALID_UTF8: _invalid,
}
"""The features that records have by themselves, in the order of the input; the others are of the log that they stand
in. Odd text comes last: a batch that has it may take another way than one with nulls and empties alone."""


def made_nasty(
    records: Sequence[InputRecord], count: int, features: frozenset[Feature]
) -> tuple[list[InputRecord], int]:
    """Two records of each kind among the first `count`, and one among the rest; of large ones a single one."""
    out = list(records)
    kinds = [feature for feature in MAKE if feature in features]
    places: dict[int, Feature] = {}
    for at, feature in enumerate(MAKE):  # a feature has its places whether the others are there or not
        first = (at + 1) * count // (len(MAKE) + 1)
        wanted = [first] if feature is Feature.LARGE else [first, first + 1, count + 2 * at + 1]
        for place in wanted:
            if feature in kinds and place < len(out):
                places.setdefault(place, feature)
    for place, feature in places.items():
        out[place] = MAKE[feature](out[place])
    return out, len(places)
