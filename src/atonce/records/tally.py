"""What became of each offset that one fetch covers, from the batches themselves: a record given, or the reason why not.

A batch's header says which offsets it covers and how many records it holds; between batches there is nothing. Only a
batch that the range cuts *and* that lost records to compaction is walked, record by record, in compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import int64, njit

from atonce.errors import CorruptLogError
from atonce.records.columns import (
    ATTRIBUTES,
    BAD_COUNT,
    BAD_RECORD,
    BASE_OFFSET,
    CODEC_MASK,
    CONTROL,
    COUNT,
    EPOCH,
    FROM,
    LAST_OFFSET,
    SKIP,
    TO,
    WHERE,
    Decoded,
    Located,
    corrupt,
)
from atonce.records.compression import DEFAULT_LIMIT, Compression, DecompressionFailed, decompress
from atonce.records.memory import read_varint


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Offsets `start` to `upto - 1`, each counted once."""

    upto: int
    records: int
    control: int
    aborted: int
    missing: int
    first_epoch: int
    """Leader epoch of the first batch with an offset in the range; -1 when there is none."""
    epoch: int
    """Leader epoch of the last batch that begins below the end; -1 when there is none."""
    reach: int
    """After the last offset that this batch covers."""


@njit(int64(int64, int64, int64, int64, int64, int64), cache=True, nogil=True)
def count_between(at: Any, end: Any, count: Any, base_offset: Any, first: Any, stop: Any) -> Any:
    """How many of a batch's records lie in first <= offset < stop; -1 when their lengths do not add up."""
    found = 0
    for _ in range(count):
        length, at = read_varint(at, end)
        if at < 0 or length < 1 or length > end - at:
            return -1
        record_end = at + length
        _, at = read_varint(at + 1, record_end)
        if at < 0:
            return -1
        offset_delta, at = read_varint(at, record_end)
        if at < 0:
            return -1
        offset = base_offset + offset_delta
        if first <= offset and offset < stop:
            found += 1
        at = record_end
    return found if at == end else -1


def tally(located: Located, decoded: Decoded, *, start: int, end: int, where: str = "record batches") -> Tally:
    """For what `decode` was asked with the same start and end. Batches that contradict each other raise."""
    table = located.table
    base, last, count = table[:, BASE_OFFSET], table[:, LAST_OFFSET], table[:, COUNT]
    if np.any(count > last - base + 1):
        worst = int(np.argmax(count > last - base + 1))
        raise corrupt(BAD_COUNT, where, 0, int(base[worst]))
    if np.any(base[1:] <= last[:-1]):
        worst = int(np.argmax(base[1:] <= last[:-1]))
        raise CorruptLogError(
            f"{where}: the batch at offset {int(base[worst + 1])} begins before the one ahead of it ends "
            f"(offset {int(last[worst])}). Nothing of this fetch was used."
        )
    begun = base < end
    inside = begun & (last >= start)
    span = np.where(inside, np.minimum(last + 1, end) - np.maximum(base, start), 0)
    dense = count == last - base + 1
    present = np.where(dense, span, count)
    for number in np.flatnonzero(inside & ~dense & ((base < start) | (last >= end))).tolist():
        present[number] = _walked(located, decoded, number, start, end, where)
    control = (table[:, ATTRIBUTES] & CONTROL) != 0
    dropped = (table[:, SKIP] != 0) & ~control
    records = int(present[inside & ~control & ~dropped].sum())
    if records != decoded.rows:
        raise CorruptLogError(
            f"{where}: the headers of the batches from offset {start} on promise {records} records, but {decoded.rows} "
            "were found. Nothing of this fetch was used."
        )
    upto = max(start, min(end, located.next_offset))
    newest = int(np.flatnonzero(begun)[-1]) if begun.any() else -1
    oldest = int(np.argmax(inside)) if inside.any() else -1
    return Tally(
        upto=upto,
        records=records,
        control=int(present[inside & control].sum()),
        aborted=int(present[inside & dropped].sum()),
        missing=upto - start - int(present[inside].sum()),
        first_epoch=int(table[oldest, EPOCH]) if oldest >= 0 else -1,
        epoch=int(table[newest, EPOCH]) if newest >= 0 else -1,
        reach=int(last[newest]) + 1 if newest >= 0 else -1,
    )


def _walked(located: Located, decoded: Decoded, number: int, start: int, end: int, where: str) -> int:
    row = located.table[number]
    base, codec = int(row[BASE_OFFSET]), int(row[ATTRIBUTES]) & CODEC_MASK
    if row[WHERE]:
        records = decoded.unpacked[int(row[FROM]) : int(row[TO])]
    else:
        view = memoryview(located.data).cast("B")[int(row[FROM]) : int(row[TO])]
        try:
            packed = decompress(Compression(codec), view, limit=DEFAULT_LIMIT) if codec else view
        except (DecompressionFailed, ValueError) as error:
            raise CorruptLogError(f"{where}: the batch at offset {base} cannot be unpacked: {error}") from error
        records = np.frombuffer(packed, np.uint8)
    at = records.ctypes.data
    found = count_between(at, at + len(records), int(row[COUNT]), base, start, end)
    if found < 0:
        raise corrupt(BAD_RECORD, where, 0, base)
    return int(found)
