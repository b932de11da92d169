"""A producer's records looked at before they are stored, compiled: nothing in them is believed, nothing is copied.

A batch with the right checksum may still lie: about how many records it holds, how long they are, when they were made.
Consumers would stick on it for ever, so it is refused as Kafka refuses it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import int64, njit, types

from atonce.records.memory import BYTES_IN, address, read_varint

OK, BAD_RECORD, BAD_OFFSET, BAD_HEADER, LEFT_OVER = range(5)
PROBLEMS = {
    BAD_RECORD: "the lengths of its records do not add up",
    BAD_OFFSET: "the offsets of its records do not follow each other",
    BAD_HEADER: "a header of a record is not whole",
    LEFT_OVER: "bytes are left after the last of its records",
}

_LEAST, _MOST = -(2**63), 2**63 - 1


class Walked(NamedTuple):
    """What the records of a batch say: the first problem and its record, and facts about all of them."""

    problem: int
    record: int
    null_keys: int
    least_timestamp: int
    most_timestamp: int


@njit(types.UniTuple(int64, 5)(BYTES_IN, int64, int64), cache=True, nogil=True)
def _walk(data: Any, count: Any, base_timestamp: Any) -> Any:
    at = address(data)
    end = at + len(data)
    null_keys, least, most = 0, _MOST, _LEAST
    for number in range(count):
        length, at = read_varint(at, end)
        if at < 0 or length < 1 or length > end - at:
            return BAD_RECORD, number, null_keys, least, most
        record_end = at + length
        time_delta, at = read_varint(at + 1, record_end)
        if at < 0:
            return BAD_RECORD, number, null_keys, least, most
        offset_delta, at = read_varint(at, record_end)
        if at < 0:
            return BAD_RECORD, number, null_keys, least, most
        if offset_delta != number:
            return BAD_OFFSET, number, null_keys, least, most
        key_size, at = read_varint(at, record_end)
        if at < 0 or key_size > record_end - at:
            return BAD_RECORD, number, null_keys, least, most
        null_keys += key_size < 0
        value_size, at = read_varint(at + max(key_size, 0), record_end)
        if at < 0 or value_size > record_end - at:
            return BAD_RECORD, number, null_keys, least, most
        headers, at = read_varint(at + max(value_size, 0), record_end)
        if at < 0 or headers < 0 or headers > record_end - at:
            return BAD_HEADER, number, null_keys, least, most
        for _ in range(headers):
            size, at = read_varint(at, record_end)
            if at < 0 or size < 0 or size > record_end - at:
                return BAD_HEADER, number, null_keys, least, most
            size, at = read_varint(at + size, record_end)
            if at < 0 or size > record_end - at:
                return BAD_HEADER, number, null_keys, least, most
            at += max(size, 0)
        if at != record_end:
            return BAD_RECORD, number, null_keys, least, most
        moment = base_timestamp + time_delta
        least, most = min(least, moment), max(most, moment)
    return (OK if at == end else LEFT_OVER), count, null_keys, least, most


def walk(records: bytes | bytearray | memoryview, count: int, base_timestamp: int) -> Walked:
    """The uncompressed records of a batch that says it has `count` of them."""
    data = np.frombuffer(records, np.uint8)
    data.flags.writeable = False
    return Walked(*_walk(data, count, base_timestamp))
