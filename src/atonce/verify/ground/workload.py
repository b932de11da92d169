"""The input of a run: numbered records made from a seed, lines of a file, or a sample of the real topic."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from atonce.connectors.contract import Feature, InputRecord
from atonce.errors import UsageError
from atonce.verify.audit.readers import CommittedReader
from atonce.verify.ground.nasty import made_nasty
from atonce.verify.wire.cluster import COMMITTED, EARLIEST, Cluster

MARK = re.compile(rb"ao-(\d{6})", re.IGNORECASE)
"""Stands in every generated record, in its value or its key; a transform that keeps it makes output traceable."""

NONE: frozenset[Feature] = frozenset()


@dataclass(frozen=True, slots=True)
class Workload:
    """`head` is there before the subject starts; `tail` comes after the fault, so that a stuck log is noticed."""

    head: tuple[InputRecord, ...]
    tail: tuple[InputRecord, ...]
    partitions: int
    generated: bool
    features: frozenset[Feature] = NONE
    """What it carries of what makes input hard to take."""
    nasty: int = 0
    """How many records carry a feature of their own."""

    @property
    def all(self) -> tuple[InputRecord, ...]:
        return self.head + self.tail


Recipe = Callable[[frozenset[Feature]], Workload]
"""The same input with these features, as far as it can have them."""


def generated(
    seed: int, count: int, partitions: int, tail: int, features: frozenset[Feature] = NONE, at_ms: int = 0
) -> Workload:
    """`at_ms`: the time of the first record; the others follow a millisecond apart. 0: the time of sending."""
    rng = random.Random(f"workload-{seed}")
    records = []
    for number in range(count + tail):
        # Some keys come in the rest alone: only these may go to a partition that was added meanwhile.
        late = number >= count and number % 5 < 2
        key = f"n{rng.randrange(4)}" if late else f"k{rng.randrange(16)}"
        value = json.dumps(
            {"id": f"ao-{number:06d}", "key": key, "n": number, "amount": rng.randrange(1, 1000)}, separators=(",", ":")
        )
        # One key, one partition: only then does the log keep the order of a key.
        records.append(InputRecord(number, int(key[1:]) % partitions, key.encode(), value.encode()))
    records, nasty = made_nasty(records, count, features)
    timed = [replace(record, timestamp_ms=_time(at_ms, record.number)) for record in records]
    made = Workload(tuple(timed[:count]), tuple(timed[count:]), partitions, True, features, nasty)
    return spread(made, features)


def _time(at_ms: int, number: int) -> int | None:
    return at_ms + number if at_ms else None


def from_lines(path: Path, partitions: int, tail: int, at_ms: int = 0) -> Workload:
    """One value a line, or key and value with a tab between."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the records of --records {path}: {error.strerror}") from error
    records = []
    for number, line in enumerate(lines):
        key, found, value = line.partition(b"\t")
        mine = InputRecord(number, 0, key, value) if found else InputRecord(number, 0, None, line)
        records.append(replace(mine, timestamp_ms=_time(at_ms, number)))
    return _placed(records, partitions, tail, f"--records {path}")


def sampled(cluster: Cluster, topic: str, count: int, partitions: int, tail: int, at_ms: int = 0) -> Workload:
    """The first `count` committed records that the real topic still holds. Reads only."""
    reader = CommittedReader(cluster, topic)
    ends = cluster.offsets(topic, isolation=COMMITTED)
    starts = cluster.offsets(topic, EARLIEST)
    while len(reader.seen) < count:
        if not reader.poll(wait_ms=100) and all(reader._positions.get(p, starts[p]) >= ends[p] for p in ends):
            break
    records = [
        InputRecord(
            number,
            0,
            seen.record.key,
            seen.record.value,
            tuple((name.decode(errors="replace"), value) for name, value in seen.record.headers),
            _time(at_ms, number),  # of its own time retention could remove it in the middle of a run
        )
        for number, seen in enumerate(reader.seen[:count])
    ]
    return _placed(records, partitions, tail, f"--sample {count} of topic {topic}")


def _placed(records: Sequence[InputRecord], partitions: int, tail: int, where: str) -> Workload:
    if len(records) < 2:
        raise UsageError(f"{where} gives {len(records)} records; at least 2 are needed, some tens to say much")
    placed = tuple(
        replace(record, partition=(record.number if record.key is None else sum(record.key)) % partitions)
        for record in records
    )
    cut = max(1, len(placed) - min(tail, len(placed) // 5))
    return Workload(placed[:cut], placed[cut:], partitions, generated=False)


def spread(workload: Workload, features: frozenset[Feature]) -> Workload:
    """The same records, some of them in a second topic or in a partition that is added with the rest. All records of a
    key stay in one place: only then does the log keep their order."""
    early = {record.key for record in workload.head}

    def placed(record: InputRecord, *, late: bool) -> InputRecord:
        sort = crc32(b"null" if record.key is None else record.key)
        if Feature.SECOND_TOPIC in features and record.key in early and record.key is not None and sort % 7 == 0:
            return replace(record, partition=0, beside=True)
        may_move = late and (record.key is None or record.key not in early)
        if not may_move or sort % 3 == 0:
            return record
        if Feature.NEW_TOPIC in features and sort % 3 == 1:
            return replace(record, partition=0, beside=True)
        return replace(record, partition=workload.partitions) if Feature.NEW_PARTITION in features else record

    return replace(
        workload,
        head=tuple(placed(record, late=False) for record in workload.head),
        tail=tuple(placed(record, late=True) for record in workload.tail),
        features=workload.features | features,
    )
