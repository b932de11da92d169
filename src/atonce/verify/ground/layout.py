"""How the records of a workload stand in the log: which batch, which codec, inside which transaction, at which offset.

Between them are ghosts: records of transactions that were aborted, which nobody who reads committed data may deliver.
All of it follows from the workload alone, so that every run has the same log and offsets are known beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from atonce.connectors.contract import Feature, InputRecord
from atonce.verify.ground.workload import Workload

CODECS = (0, 1, 2, 3, 4)
"""none, gzip, snappy, lz4, zstd."""
BATCH = 50
SMALL_BATCH = 12
GHOSTS = 2
GAP_KEYS, GAP_ROUNDS = 3, 4
_GHOST_NUMBERS = 900_000


class Ends(StrEnum):
    PLAIN = "plain"  # no transaction
    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One record batch."""

    beside: bool
    partition: int
    records: tuple[InputRecord, ...]
    codec: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """Batches that are sent one after the other, in one transaction unless it is plain."""

    chunks: tuple[Chunk, ...]
    ends: Ends = Ends.PLAIN
    later: bool = False
    """The transaction stays open until the rest of the input comes."""


@dataclass(frozen=True, slots=True)
class Layout:
    workload: Workload
    """With the offset of every record."""
    head: tuple[Step, ...]
    tail: tuple[Step, ...]
    removed: tuple[Chunk, ...] = ()
    """Stand before everything else, until compaction removes them: newer records of their keys follow."""

    @property
    def first_kept(self) -> int:
        """The first offset that is left in partition 0."""
        return sum(len(chunk.records) for chunk in self.removed)

    @property
    def ghosts(self) -> int:
        steps = self.head + self.tail
        return sum(len(chunk.records) for step in steps if step.ends is Ends.ABORT for chunk in step.chunks)


def laid_out(workload: Workload) -> Layout:
    features = workload.features
    small = Feature.CODECS in features and len(workload.head) <= 1000
    size = SMALL_BATCH if small else BATCH * (1 if len(workload.head) <= 1000 else 20)
    early = _first_of_their_keys(workload) if Feature.GAPS in features else ()
    kept = early[:GAP_KEYS]
    removed = tuple(Chunk(False, 0, _older(kept, turn)) for turn in range(GAP_ROUNDS)) if kept else ()
    head = [Step((Chunk(False, 0, part),)) for part in (kept, early[GAP_KEYS:]) if part]
    head += _plain([record for record in workload.head if record not in early], size, Feature.CODECS in features)
    held = _held(workload) if Feature.OPEN in features else ()
    waiting = {record.number for step in held for chunk in step.chunks for record in chunk.records}
    rest = [record for record in workload.tail if record.number not in waiting]
    if Feature.ABORTED in features:
        begun = 2 if removed else 0
        head = head[:begun] + _with_transactions(head[begun:], workload)
    tail = tuple(_plain(rest, size, Feature.CODECS in features))
    head += held
    offsets = _offsets([*(Step((chunk,)) for chunk in removed), *head], tail)

    def at(record: InputRecord) -> InputRecord:
        return replace(record, offset=offsets[record.number])

    placed = replace(workload, head=tuple(map(at, workload.head)), tail=tuple(map(at, workload.tail)))
    return Layout(placed, tuple(head), tail, removed)


def _first_of_their_keys(workload: Workload) -> tuple[InputRecord, ...]:
    """Of partition 0, small and with a value: what compaction keeps of them needs no second thought. The second half
    closes the segment of the first."""
    first: dict[bytes, InputRecord] = {}
    for record in workload.head:
        if record.partition == 0 and not record.beside and record.key and 0 < len(record.value or b"") < 100:
            first.setdefault(record.key, record)
    return tuple(sorted(first.values(), key=lambda record: record.number)[: 2 * GAP_KEYS])


def _older(records: Sequence[InputRecord], turn: int) -> tuple[InputRecord, ...]:
    return tuple(
        replace(record, number=_GHOST_NUMBERS + 1000 + turn * GAP_KEYS + at, value=b"removed by compaction")
        for at, record in enumerate(records)
    )


def _plain(records: Sequence[InputRecord], size: int, codecs: bool) -> Iterator[Step]:
    """Partition by partition, some at a time. A large record has a batch of its own."""
    for place in sorted({(record.beside, record.partition) for record in records}):
        mine = [record for record in records if (record.beside, record.partition) == place]
        for number, at in enumerate(range(0, len(mine), size)):
            codec = CODECS[(number + place[1]) % len(CODECS)] if codecs else 0
            yield Step((Chunk(*place, tuple(mine[at : at + size]), codec),))


def _ghosts(workload: Workload, first: int, partition: int) -> tuple[InputRecord, ...]:
    """Like records of the workload, and not among them; of given records they are copies."""
    like = [record for record in workload.all if record.value and record.key and len(record.value) < 10_000]
    made = []
    for at, record in enumerate(like[:GHOSTS]):
        number = _GHOST_NUMBERS + first + at
        value = record.value or b""
        if workload.generated:
            value = value.replace(f"ao-{record.number:06d}".encode(), f"ao-{number:06d}".encode())
        made.append(replace(record, number=number, value=value, partition=partition, beside=False))
    return tuple(made)


def _with_transactions(steps: list[Step], workload: Workload) -> list[Step]:
    """The first batch of every partition is followed by an aborted transaction, the second one is committed in one.
    Something plain comes last: a client whose position stays at its last record still reaches the end."""
    all_of = Counter((step.chunks[0].beside, step.chunks[0].partition) for step in steps)
    seen: Counter[tuple[bool, int]] = Counter()
    out = []
    for step in steps:
        (chunk,) = step.chunks
        place = (chunk.beside, chunk.partition)
        seen[place] += 1
        out.append(replace(step, ends=Ends.COMMIT) if seen[place] == 2 < all_of[place] else step)
        ghosts = _ghosts(workload, GHOSTS * chunk.partition, chunk.partition)
        if seen[place] == 1 < all_of[place] and not chunk.beside and ghosts:
            out.append(Step((Chunk(False, chunk.partition, ghosts),), Ends.ABORT))
    return out


def _held(workload: Workload) -> tuple[Step, ...]:
    """Open while the subject starts: one that is aborted in the end, and one that brings the rest's first records."""
    last = workload.partitions - 1
    steps = []
    if ghosts := _ghosts(workload, 100, 0):
        steps.append(Step((Chunk(False, 0, ghosts),), Ends.ABORT, later=True))
    mine = [record for record in workload.tail if not record.beside and record.partition == last]
    if len(mine) > GHOSTS:  # something must come after it, or the log would end with a marker
        steps.append(Step((Chunk(False, last, tuple(mine[:GHOSTS])),), Ends.COMMIT, later=True))
    return tuple(steps)


def _offsets(head: Sequence[Step], tail: Sequence[Step]) -> dict[int, int]:
    """Number → offset. A transaction's marker takes one in every partition it wrote to."""
    ends: Counter[tuple[bool, int]] = Counter()
    found: dict[int, int] = {}
    open_places: list[tuple[bool, int]] = []
    for step in (*head, None, *tail):
        if step is None:
            for place in open_places:
                ends[place] += 1
            continue
        for chunk in step.chunks:
            place = (chunk.beside, chunk.partition)
            for record in chunk.records:
                found[record.number] = ends[place]
                ends[place] += 1
            if step.ends is not Ends.PLAIN:
                if step.later:
                    open_places.append(place)
                else:
                    ends[place] += 1
    return found
