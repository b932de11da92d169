"""The plain walk over a producer's records and the compiled one say the same, whatever the bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atonce.records import walk as walks
from atonce.records.problems import OK
from atonce.records.walk_compiled import walk as compiled


def zigzag(number: int) -> bytes:
    folded, out = (number << 1) ^ (number >> 63), bytearray()
    folded &= 2**64 - 1
    while folded > 127:
        out.append(folded & 127 | 128)
        folded >>= 7
    return bytes([*out, folded])


def record(number: int, key: bytes | None, value: bytes, headers: list[tuple[bytes, bytes]], late: int) -> bytes:
    parts = [b"\0", zigzag(late), zigzag(number)]
    parts += [zigzag(-1)] if key is None else [zigzag(len(key)), key]
    parts += [zigzag(len(value)), value, zigzag(len(headers))]
    for name, text in headers:
        parts += [zigzag(len(name)), name, zigzag(len(text)), text]
    body = b"".join(parts)
    return zigzag(len(body)) + body


def batch(seed: int) -> tuple[bytes, int]:
    rng = random.Random(seed)
    count = rng.randrange(1, 8)
    records = [
        record(
            number,
            None if rng.random() < 0.3 else rng.randbytes(rng.randrange(5)),
            rng.randbytes(rng.randrange(200)),
            [(rng.randbytes(3), rng.randbytes(rng.randrange(4))) for _ in range(rng.randrange(3))],
            rng.randrange(-5, 5),
        )
        for number in range(count)
    ]
    return b"".join(records), count


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=4))
def test_both_walks_say_the_same_of_whole_and_of_damaged_records(seed: int, damage: list[tuple[int, int]]) -> None:
    data, count = batch(seed)
    assert walks.plain_walk(data, count, 1_000)[0] == OK
    changed = bytearray(data)
    for at, byte in damage:
        changed[at % len(changed)] = byte
    assert tuple(walks.plain_walk(bytes(changed), count, 1_000)) == tuple(compiled(bytes(changed), count, 1_000))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_both_walks_say_the_same_of_any_bytes(data: bytes, count: int) -> None:
    assert tuple(walks.plain_walk(data, count, 2**62)) == tuple(compiled(data, count, 2**62))


def test_small_batches_wait_for_no_compiler_and_a_large_one_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = walks._Compiled()
    monkeypatch.setattr(walks, "_compiled", fresh)
    data, count = batch(1)
    assert walks.walk(data, count, 0).problem == OK and fresh.walk is None
    large = record(0, b"k", b"v" * walks.PLAIN_BYTES, [], 0)
    assert walks.walk(large, 1, 0).problem == OK and fresh.walk is not None
