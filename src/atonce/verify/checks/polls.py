"""Checks on the order in which a reader was given records, poll by poll. Our reader keeps its partitions: no rebalance,
across which Kafka allows a skip or a step back, ever comes between two of its polls.

Jepsen's `int-` forms are the same thing inside one poll.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from atonce.verify.audit.readers import Seen, Transactions
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.checks.history import place
from atonce.verify.wire.batches import Record


def reader_order(topic: str, seen: Sequence[Seen], backwards: Sequence[str]) -> list[Finding]:
    """nonmonotonic-poll, int-nonmonotonic-poll: the reader was sent back, or what was stable is no longer."""
    between = list(backwards)
    within: list[str] = []
    for before, after in _neighbours(seen):
        if after.record.offset <= before.record.offset:
            words = f"{place(topic, after.record)} came after offset {before.record.offset}"
            (within if after.poll == before.poll else between).append(words)
    return [*found(Anomaly.NONMONOTONIC_POLL, between), *found(Anomaly.INT_NONMONOTONIC_POLL, within)]


def skipped(topic: str, log: Sequence[Record], seen: Sequence[Seen], ended: Transactions) -> list[Finding]:
    """poll-skip, int-poll-skip: the reader went on past records that were there for it to read."""
    there: dict[int, list[int]] = {}
    for record in sorted(visible(log, ended), key=lambda one: one.offset):
        there.setdefault(record.partition, []).append(record.offset)
    between: list[str] = []
    within: list[str] = []
    for before, after in _neighbours(seen):
        offsets = there.get(after.record.partition, [])
        first, last = before.record.offset, after.record.offset
        missed = offsets[bisect_right(offsets, first) : bisect_left(offsets, last)]
        if missed:
            words = (
                f"{topic}/{after.record.partition}: from {first} to {last}, past {len(missed)} records at {missed[0]}"
            )
            (within if after.poll == before.poll else between).append(words)
    return [*found(Anomaly.POLL_SKIP, between), *found(Anomaly.INT_POLL_SKIP, within)]


def visible(log: Iterable[Record], ended: Transactions) -> Iterator[Record]:
    """What a read_committed reader is owed: committed, or never part of a transaction."""
    for record in log:
        if not record.control and (not record.transactional or (record.partition, record.offset) in ended.committed):
            yield record


def _neighbours(seen: Sequence[Seen]) -> Iterator[tuple[Seen, Seen]]:
    """What was given one after the other, partition by partition."""
    by_partition: dict[int, list[Seen]] = {}
    for one in seen:
        by_partition.setdefault(one.record.partition, []).append(one)
    for mine in by_partition.values():
        yield from pairwise(mine)
