"""A producer's records looked at before they are stored: nothing in them is believed, nothing is copied.

A batch with the right checksum may still lie: about how many records it holds, how long they are, when they were made.
Consumers would stick on it for ever, so it is refused as Kafka refuses it. A broker that lives for a short test must
not wait for a compiler, so the first few small batches are looked at in plain Python; meanwhile the compiled walk is
loaded beside it.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any, NamedTuple

from atonce.records.problems import BAD_HEADER, BAD_OFFSET, BAD_RECORD, LEFT_OVER, OK, PROBLEMS

__all__ = ["PROBLEMS", "Walked", "walk"]

PLAIN_BYTES = 4096
"""Up to here a batch is looked at in plain Python, in less than a millisecond, as long as nothing faster is there."""
PLAIN_BATCHES = 16
"""A broker that gets more than these is worth a compiler."""
_LEAST, _MOST = -(2**63), 2**63 - 1


class Walked(NamedTuple):
    """What the records of a batch say: the first problem and its record, and facts about all of them."""

    problem: int
    record: int
    null_keys: int
    least_timestamp: int
    most_timestamp: int


class _Compiled:
    """Loaded by the first large batch, or in a thread once there were many small ones."""

    def __init__(self) -> None:
        self.walk: Any = None
        self._small = 0

    def load(self) -> None:
        self.walk = importlib.import_module("atonce.records.walk_compiled").walk

    def one_more_small_one(self) -> None:
        self._small += 1
        if self._small == PLAIN_BATCHES:
            threading.Thread(target=self.load, name="atonce-walk", daemon=True).start()


_compiled = _Compiled()


def is_compiled() -> bool:
    """Whether a large batch can be looked at without waiting for the compiled walk to be loaded: half a second."""
    return _compiled.walk is not None


def walk(records: bytes | bytearray | memoryview, count: int, base_timestamp: int) -> Walked:
    """The uncompressed records of a batch that says it has `count` of them."""
    if _compiled.walk is None:
        if len(records) <= PLAIN_BYTES:
            _compiled.one_more_small_one()
            return plain_walk(records, count, base_timestamp)
        _compiled.load()
    return Walked(*_compiled.walk(records, count, base_timestamp))


def plain_walk(records: bytes | bytearray | memoryview, count: int, base_timestamp: int) -> Walked:
    """The same, step by step, as `walk_compiled` does it."""
    data, at, end = memoryview(records), 0, len(records)
    null_keys, least, most = 0, _MOST, _LEAST
    for number in range(count):
        length, at = _varint(data, at, end)
        if at < 0 or length < 1 or length > end - at:
            return Walked(BAD_RECORD, number, null_keys, least, most)
        record_end = at + length
        time_delta, at = _varint(data, at + 1, record_end)
        offset_delta, at = _varint(data, at, record_end) if at >= 0 else (0, -1)
        if at < 0:
            return Walked(BAD_RECORD, number, null_keys, least, most)
        if offset_delta != number:
            return Walked(BAD_OFFSET, number, null_keys, least, most)
        key_size, at = _varint(data, at, record_end)
        if at < 0 or key_size > record_end - at:
            return Walked(BAD_RECORD, number, null_keys, least, most)
        null_keys += key_size < 0
        value_size, at = _varint(data, at + max(key_size, 0), record_end)
        if at < 0 or value_size > record_end - at:
            return Walked(BAD_RECORD, number, null_keys, least, most)
        at = _headers(data, at + max(value_size, 0), record_end)
        if at < 0:
            return Walked(BAD_HEADER, number, null_keys, least, most)
        if at != record_end:
            return Walked(BAD_RECORD, number, null_keys, least, most)
        moment = _signed(base_timestamp + time_delta)
        least, most = min(least, moment), max(most, moment)
    return Walked(OK if at == end else LEFT_OVER, count, null_keys, least, most)


def _headers(data: memoryview, at: int, end: int) -> int:
    """Where they end; -1 when one is not whole."""
    count, at = _varint(data, at, end)
    if at < 0 or count < 0 or count > end - at:
        return -1
    for _ in range(count):
        size, at = _varint(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return -1
        size, at = _varint(data, at + size, end)
        if at < 0 or size > end - at:
            return -1
        at += max(size, 0)
    return at


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """(value, next position); the position is -1 when the bytes end too early or the number is too long."""
    folded = shift = 0
    while True:
        if at >= end or shift > 63:
            return 0, -1
        byte = data[at]
        at += 1
        folded |= (byte & 127) << shift
        shift += 7
        if byte <= 127:
            folded &= 2**64 - 1
            return (folded >> 1) ^ -(folded & 1), at


def _signed(number: int) -> int:
    """As 64 bits hold it."""
    return (number + 2**63) % 2**64 - 2**63
