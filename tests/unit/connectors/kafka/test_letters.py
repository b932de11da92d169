"""A dead letter as a record of a topic, and back; and which ranges are read for originals."""

from __future__ import annotations

from typing import Any

from atonce.connectors.kafka.read.originals import _ranges
from atonce.connectors.kafka.write.letters import read, records
from atonce.delivery.letters import WHOLE, Kept, Letter, Original

ROOM = 100_000


def through(letter: Letter, limit: int = ROOM) -> Letter:
    (record,) = records([Kept(letter=letter)], "orders", "out", limit).to_pylist()
    assert record["key"] == letter.name("orders", "out").encode()
    found = read([(each["key"], each["value"]) for each in record["headers"]], record["value"])
    assert found is not None
    return found[0]


def letter(**changes: Any) -> Letter:
    original = Original(key=b"k", value=b"\xff", headers=(("a", b"1"), ("a", None)), timestamp_ms=5)
    values: dict[str, Any] = {"place": ("t", 1, 7), "index": 2, "reason": "why", "row": "{}", "original": original}
    return Letter(**{**values, **changes})


def test_letter_comes_back_as_it_was() -> None:
    assert through(letter()) == letter()
    whole = letter(index=WHOLE, row=None)
    assert through(whole) == whole


def test_letter_of_a_letter_keeps_both_their_headers_apart() -> None:
    headers = (("atonce.offset", b"3"), ("atonce.pipeline", b"other"), ("atonce.cut", b"9"), ("a", b"1"))
    nested = letter(original=Original(key=b"k", value=b"v", headers=headers, timestamp_ms=5))
    assert through(nested) == nested


def test_letter_of_a_tombstone_is_no_tombstone() -> None:
    gone = letter(original=Original(key=b"k", value=None))
    (record,) = records([Kept(letter=gone)], "orders", "out", ROOM).to_pylist()
    assert record["value"] is not None, "compaction would take the letter away"
    assert through(gone) == gone


def test_what_is_too_large_for_the_topic_is_cut_and_then_no_original() -> None:
    large = letter(original=Original(key=b"k", value=b"x" * 2 * ROOM))
    (record,) = records([Kept(letter=large)], "orders", "out", ROOM).to_pylist()
    size = sum(len(each["key"]) + len(each["value"] or b"") for each in record["headers"])
    assert len(record["value"]) + size + len(record["key"]) < ROOM
    assert through(large).original is None, "half a record must not be replayed"


def test_a_record_of_another_kind_is_no_letter() -> None:
    assert read([("trace", b"1")], b"value") is None


def test_places_that_are_close_are_read_in_one_range() -> None:
    places = [("a", 0, 1), ("a", 0, 2), ("a", 0, 9), ("a", 0, 99), ("a", 1, 99), ("b", 1, 100)]
    assert list(_ranges(places)) == [("a", 0, 1, 10), ("a", 0, 99, 100), ("a", 1, 99, 100), ("b", 1, 100, 101)]
