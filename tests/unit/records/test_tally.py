"""Each offset of a fetch is accounted for, once, from what the batches say."""

from __future__ import annotations

import random
import struct

import crc32c
import pytest

from atonce.client.read.ranges import Account
from atonce.errors import CorruptLogError, InvariantError
from atonce.records.batch import BatchHeader, assemble, attributes
from atonce.records.columns import decode, locate
from atonce.records.compression import Compression, compress
from atonce.records.record import encode_record
from atonce.records.tally import Tally, tally
from tests.unit.records.batches import marker


def batch(base: int, last: int, kept: list[int], *, producer: int = -1, epoch: int = 3, codec: int = 0) -> bytes:
    """A batch over base..last in which only the records at `kept` are left, as compaction leaves it."""
    body = bytearray()
    for offset in kept:
        encode_record(body, offset - base, 0, b"k", b"v", ())
    compression = Compression(codec)
    flags = attributes(compression=compression, transactional=producer >= 0)
    header = BatchHeader(base, 0, epoch, 2, 0, flags, last - base, 0, 0, producer, 0, -1, len(kept))
    return assemble(header, compress(compression, bytes(body)) if codec else bytes(body))


def tallied(data: bytes, start: int, end: int, aborted: list[tuple[int, int]] | None = None) -> Tally:
    located = locate(data)
    found = decode(located, start=start, end=end, aborted=aborted or [])
    return tally(located, found, start=start, end=end)


def test_gaps_markers_and_aborted_records_are_told_apart() -> None:
    data = (
        batch(0, 9, list(range(10)))
        + batch(15, 19, [15, 17])
        + batch(20, 24, list(range(20, 25)), producer=7)
        + marker(25, producer_id=7, commit=False)
        + batch(26, 29, list(range(26, 30)), epoch=5)
    )
    assert tallied(data, 0, 100, [(7, 20)]) == Tally(
        upto=30, records=16, control=1, aborted=5, missing=8, first_epoch=3, epoch=5, reach=30
    )


def test_the_last_batch_that_begins_below_the_end_gives_the_epoch() -> None:
    data = batch(0, 9, list(range(10)), epoch=1) + batch(20, 29, list(range(20, 30)), epoch=2)
    cut, gap = tallied(data, 0, 25), tallied(data, 0, 15)
    assert (cut.upto, cut.records, cut.missing, cut.epoch, cut.reach) == (25, 15, 10, 2, 30)
    assert (gap.upto, gap.records, gap.missing, gap.epoch, gap.reach) == (15, 10, 5, 1, 10)


def test_the_first_batch_that_reaches_into_the_range_gives_its_first_epoch() -> None:
    data = batch(0, 9, list(range(10)), epoch=1) + batch(20, 29, list(range(20, 30)), epoch=2)
    assert [tallied(data, start, 25).first_epoch for start in (0, 9, 10, 22)] == [1, 1, 2, 2]
    assert tallied(data, 30, 40).first_epoch == -1


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("aborted", [False, True])
def test_compacted_batches_that_a_range_cuts_are_counted_record_by_record(codec: int, aborted: bool) -> None:
    rng = random.Random(7)
    for _ in range(50):
        layout, at = [], rng.randrange(5)
        for _ in range(4):
            last = at + rng.randrange(1, 12)
            layout.append((at, last, sorted(rng.sample(range(at, last + 1), rng.randrange(0, last - at + 2)))))
            at = last + 1 + rng.randrange(4)
        data = b"".join(batch(*each, producer=1 if aborted else -1, codec=codec) for each in layout)
        start, end = sorted(rng.sample(range(at + 1), 2))
        if start > layout[-1][1]:
            continue
        found = tallied(data, start, end, [(1, 0)] if aborted else [])
        upto = min(end, layout[-1][1] + 1)
        present = sum(start <= offset < upto for _, _, kept in layout for offset in kept)
        assert found.upto == upto
        assert (found.records, found.aborted) == ((0, present) if aborted else (present, 0))
        assert found.missing == upto - start - present


def resealed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def test_batches_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(CorruptLogError, match="offset 5 begins before the one ahead of it ends"):
        tallied(batch(0, 9, list(range(10))) + batch(5, 14, list(range(5, 15))), 0, 100)
    shorter = bytearray(batch(0, 9, list(range(10))))
    struct.pack_into(">i", shorter, 23, 4)
    with pytest.raises(CorruptLogError, match="offsets of its records do not grow, or leave those"):
        tallied(resealed(shorter), 0, 100)
    crowded = bytearray(batch(0, 9, list(range(10)), producer=1))
    struct.pack_into(">i", crowded, 23, 4)
    with pytest.raises(CorruptLogError, match="more records than"):
        tallied(resealed(crowded), 0, 100, [(1, 0)])


def test_an_account_that_does_not_add_up_raises() -> None:
    with pytest.raises(InvariantError, match=r"t/0: offsets 5 to 9 are 5, but 4 are accounted for \(4 records"):
        Account(topic="t", partition=0, start=5, end=10, records=4, control=0, aborted=0, missing=0, gone=0, epoch=-1)
