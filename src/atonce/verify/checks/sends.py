"""Checks on the order in which one producer's batches came to stand in a partition, by their sequence numbers.

Jepsen's `int-` forms are the same thing inside one transaction. A producer without an id has no sequence: for it only
the order of its keys can be judged (checks_output).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.wire.batches import Record
from atonce.verify.wire.history import History


@dataclass(frozen=True, slots=True, order=True)
class _Sent:
    """One acknowledged batch; sorted by what the producer sent first."""

    epoch: int
    sequence: int
    base: int
    transactional: bool


def send_order(topic: str, history: History) -> list[Finding]:
    """nonmonotonic-send, int-nonmonotonic-send: a later batch of one producer stands before an earlier one."""
    between: list[str] = []
    within: list[str] = []
    for (producer, partition), batches in _acknowledged(topic, history).items():
        # The answer to a retry names the offset of the first try: the same batch, not a later one.
        for before, after in pairwise(sorted(batches)):
            if after.base >= before.base:
                continue
            words = (
                f"{topic}/{partition}: producer {producer} epoch {after.epoch} sequence {after.sequence} stands at "
                f"{after.base}, its earlier epoch {before.epoch} sequence {before.sequence} at {before.base}"
            )
            (within if after.epoch == before.epoch and after.transactional else between).append(words)
    return [*found(Anomaly.REORDERED, between), *found(Anomaly.INT_REORDERED, within)]


def _acknowledged(topic: str, history: History) -> dict[tuple[int, int], set[_Sent]]:
    """(producer id, partition) → its batches that were acknowledged with an offset."""
    out: dict[tuple[int, int], set[_Sent]] = {}
    for entry in history.of("produce"):
        if not entry.acknowledged:
            continue
        bases = {(name, partition): base for name, partition, base in entry.base_offsets}
        for name, partition, head in entry.facts.batches:
            base = bases.get((name, partition), -1)
            if name == topic and base >= 0 and head.producer_id >= 0 and head.sequence >= 0:
                sent = _Sent(head.epoch, head.sequence, base, head.transactional)
                out.setdefault((head.producer_id, partition), set()).add(sent)
    return out


def epochs_in_order(topic: str, log: Sequence[Record]) -> list[Finding]:
    """nonmonotonic-send in the log itself: a record of an older epoch behind one of a newer."""
    newest: dict[tuple[int, int], int] = {}
    cases = []
    for record in sorted(log, key=lambda one: (one.partition, one.offset)):
        if record.control or record.producer_id < 0:
            continue
        group = (record.partition, record.producer_id)
        if record.epoch < newest.get(group, -1):
            cases.append(
                f"{topic}/{record.partition}@{record.offset} is of epoch {record.epoch} of producer "
                f"{record.producer_id}, behind epoch {newest[group]}"
            )
        newest[group] = max(newest.get(group, -1), record.epoch)
    return found(Anomaly.REORDERED, cases)


def send_skips(topic: str, log: Sequence[Record]) -> list[Finding]:
    """int-send-skip: inside one transaction, records of others between its own. Legal in Kafka's model."""
    cases = []
    for partition, records in _data_by_partition(log):
        last: dict[tuple[int, int], int] = {}
        for at, record in enumerate(records):
            mine = (record.producer_id, record.epoch)
            if record.transactional and mine in last and last[mine] != at - 1:
                cases.append(f"{topic}/{partition}@{record.offset}: others' records stand before it in its transaction")
            last[mine] = at
    return found(Anomaly.INT_SEND_SKIP, cases)


def _data_by_partition(log: Sequence[Record]) -> Iterator[tuple[int, list[Record]]]:
    by_partition: dict[int, list[Record]] = {}
    for record in sorted(log, key=lambda one: (one.partition, one.offset)):
        if not record.control:
            by_partition.setdefault(record.partition, []).append(record)
    yield from by_partition.items()
