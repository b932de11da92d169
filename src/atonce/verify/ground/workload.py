"""The input of a run: numbered records made from a seed, lines of a file, or a sample of the real topic."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from atonce.connectors.contract import InputRecord
from atonce.errors import UsageError
from atonce.verify.audit.readers import CommittedReader
from atonce.verify.wire.cluster import COMMITTED, EARLIEST, Cluster

MARK = re.compile(rb"ao-(\d{6})", re.IGNORECASE)
"""Stands in every generated value; a transform that keeps it makes output traceable to its input."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`head` is there before the subject starts; `tail` comes after the fault, so that a stuck log is noticed."""

    head: tuple[InputRecord, ...]
    tail: tuple[InputRecord, ...]
    partitions: int
    generated: bool

    @property
    def all(self) -> tuple[InputRecord, ...]:
        return self.head + self.tail


def generated(seed: int, count: int, partitions: int, tail: int) -> Workload:
    rng = random.Random(f"workload-{seed}")
    records = []
    for number in range(count + tail):
        key = f"k{rng.randrange(16)}"
        value = json.dumps(
            {"id": f"ao-{number:06d}", "key": key, "n": number, "amount": rng.randrange(1, 1000)}, separators=(",", ":")
        )
        # One key, one partition: only then does the log keep the order of a key.
        records.append(InputRecord(number, int(key[1:]) % partitions, key.encode(), value.encode()))
    return Workload(tuple(records[:count]), tuple(records[count:]), partitions, generated=True)


def from_lines(path: Path, partitions: int, tail: int) -> Workload:
    """One value a line, or key and value with a tab between."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the records of --records {path}: {error.strerror}") from error
    pairs: list[tuple[bytes | None, bytes]] = []
    for line in lines:
        key, found, value = line.partition(b"\t")
        pairs.append((key, value) if found else (None, line))
    return _placed(pairs, partitions, tail, f"--records {path}")


def sampled(cluster: Cluster, topic: str, count: int, partitions: int, tail: int) -> Workload:
    """The first `count` committed records that the real topic still holds. Reads only."""
    reader = CommittedReader(cluster, topic)
    ends = cluster.offsets(topic, isolation=COMMITTED)
    starts = cluster.offsets(topic, EARLIEST)
    while len(reader.seen) < count:
        if not reader.poll(wait_ms=100) and all(reader._positions.get(p, starts[p]) >= ends[p] for p in ends):
            break
    pairs = [(seen.record.key, seen.record.value or b"") for seen in reader.seen[:count]]
    return _placed(pairs, partitions, tail, f"--sample {count} of topic {topic}")


def _placed(pairs: Sequence[tuple[bytes | None, bytes]], partitions: int, tail: int, where: str) -> Workload:
    if len(pairs) < 2:
        raise UsageError(f"{where} gives {len(pairs)} records; at least 2 are needed, some tens to say much")
    placed = tuple(
        InputRecord(number, (number if key is None else sum(key)) % partitions, key, value)
        for number, (key, value) in enumerate(pairs)
    )
    cut = max(1, len(placed) - min(tail, len(placed) // 5))
    return Workload(placed[:cut], placed[cut:], partitions, generated=False)
