"""Checks on a Kafka output's log, on what a concurrent read_committed reader was given, and on what was acknowledged.

An unknown outcome (a request without an answer) is never counted as a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atonce.verify.audit.readers import Seen, Transactions
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.wire.batches import ABORT_MARKER, COMMIT_MARKER, Record
from atonce.verify.wire.history import Entry, History


def place(topic: str, record: Record) -> str:
    value = (record.value or b"")[:60].decode(errors="backslashreplace")
    return f"{topic}/{record.partition}@{record.offset} {value}"


def aborted_reads(topic: str, seen: Sequence[Seen], ended: Transactions) -> list[Finding]:
    """G1a."""
    return found(
        Anomaly.ABORTED_READ,
        (place(topic, s.record) for s in seen if (s.record.partition, s.record.offset) in ended.aborted),
    )


def precommitted_reads(topic: str, seen: Sequence[Seen], history: History) -> list[Finding]:
    """precommitted-read: given to a reader before anybody had asked for the commit of its transaction."""
    asked: dict[tuple[int, int], list[float]] = {}
    for entry in history.of("end_txn"):
        if entry.facts.committed and entry.facts.producer_id is not None and entry.facts.epoch is not None:
            asked.setdefault((entry.facts.producer_id, entry.facts.epoch), []).append(entry.at)
    sent = _sent_at(topic, history)
    cases = []
    for one in seen:
        record = one.record
        produced = sent.get((record.partition, record.offset))
        if not record.transactional or produced is None:
            continue
        commits = [at for at in asked.get((record.producer_id, record.epoch), []) if at >= produced]
        if not commits or min(commits) > one.at:
            cases.append(place(topic, record))
    return found(Anomaly.PRECOMMITTED_READ, cases)


def _sent_at(topic: str, history: History) -> dict[tuple[int, int], float]:
    """(partition, offset) → when the Produce that the broker acknowledged for it was sent."""
    out: dict[tuple[int, int], float] = {}
    for entry, partition, base, count in _acknowledged(topic, history):
        for offset in range(base, base + count):
            out[partition, offset] = entry.at
    return out


def _acknowledged(topic: str, history: History) -> Iterable[tuple[Entry, int, int, int]]:
    """(entry, partition, base offset, record count) of every batch with an ack and an offset."""
    for entry in history.of("produce"):
        if not entry.acknowledged:
            continue
        bases = {(name, partition): base for name, partition, base in entry.base_offsets}
        for name, partition, head in entry.facts.batches:
            base = bases.get((name, partition), -1)
            if name == topic and base >= 0:
                yield entry, partition, base, head.count


def acknowledged_writes(topic: str, log: Sequence[Record], history: History) -> list[Finding]:
    """lost-write at the broker: it acknowledged an offset at which nothing of that producer stands."""
    there = {(r.partition, r.offset): r.producer_id for r in log if not r.control}
    cases = []
    for entry, partition, base, count in _acknowledged(topic, history):
        for offset in range(base, base + count):
            owner = there.get((partition, offset))
            if owner is None or (entry.facts.producer_id is not None and owner != entry.facts.producer_id):
                cases.append(f"{topic}/{partition}@{offset} was acknowledged and is not there")
    return found(Anomaly.LOST, cases)


def unseen(topic: str, log: Sequence[Record], seen: Sequence[Seen], ended: Transactions) -> list[Finding]:
    """unseen: in the log, committed, and no read_committed reader ever gets it."""
    given = {(s.record.partition, s.record.offset) for s in seen}
    return found(
        Anomaly.UNSEEN,
        (
            place(topic, r)
            for r in log
            if not r.control
            and (not r.transactional or (r.partition, r.offset) in ended.committed)
            and (r.partition, r.offset) not in given
        ),
    )


def torn_transactions(topic: str, ended: Transactions, history: History) -> list[Finding]:
    """torn-txn: one transaction committed in one partition and aborted in another.

    Only epochs with one transaction can be judged this way (transaction protocol 2 gives each its own).
    """
    ends: dict[tuple[int, int], int] = {}
    for entry in history.of("end_txn"):
        if entry.acknowledged and entry.facts.producer_id is not None and entry.facts.epoch is not None:
            group = (entry.facts.producer_id, entry.facts.epoch)
            ends[group] = ends.get(group, 0) + 1
    cases = []
    for (producer, epoch), partitions in ended.endings.items():
        if any(len(markers) > 1 for markers in partitions.values()):
            continue
        kinds = {markers[0] for markers in partitions.values()}
        if kinds == {COMMIT_MARKER, ABORT_MARKER} and ends.get((producer, epoch), 0) <= 1:
            cases.append(f"{topic}: producer {producer} epoch {epoch} committed in one partition, aborted in another")
    return found(Anomaly.TORN, cases)


def hanging(topic: str, ended: Transactions, log: Sequence[Record], held_back: bool) -> list[Finding]:
    """hanging-txn: a transaction that nothing ends any more, seen in the log or as an LSO that stands still."""
    open_records = [r for r in log if (r.partition, r.offset) in ended.open]
    if open_records:
        return found(Anomaly.HANGING, (place(topic, r) for r in open_records))
    return found(Anomaly.HANGING, [f"{topic}: the last stable offset stays below the end"] if held_back else [])


def inconsistent_offsets(topic: str, log: Sequence[Record], seen: Sequence[Seen]) -> list[Finding]:
    """inconsistent-offsets: a reader was given one content for an offset, the log now holds another."""
    there = {(r.partition, r.offset): (r.key, r.value) for r in log if not r.control}
    return found(
        Anomaly.INCONSISTENT_OFFSETS,
        (
            place(topic, s.record)
            for s in seen
            if there.get((s.record.partition, s.record.offset), (s.record.key, s.record.value))
            != (s.record.key, s.record.value)
        ),
    )


def zombie_writes(history: History, *, unverified: bool = False) -> list[Finding]:
    """zombie-write: a request with an epoch that InitProducerId had fenced before it was sent took effect.

    `unverified`: brokers that take rows and offsets of an older epoch until a marker of a newer one stands there. What
    comes of them shows in the output.
    """
    fences = [
        (entry.facts.transactional_id, entry.facts.extra["producer_id"], entry.facts.extra["epoch"], entry.answered_at)
        for entry in history.of("init_producer_id")
        if entry.acknowledged and entry.facts.transactional_id and "epoch" in entry.facts.extra
    ]
    cases = []
    checked = ("end_txn", "add_partitions_to_txn")
    for entry in history.of(*checked, *(() if unverified else ("produce", "txn_offset_commit"))):
        mine = entry.facts
        if not entry.acknowledged or mine.epoch is None or mine.producer_id is None or mine.transactional_id is None:
            continue
        for transactional_id, producer, epoch, at in fences:
            fenced = transactional_id == mine.transactional_id and (
                (producer == mine.producer_id and mine.epoch < epoch) or producer > mine.producer_id
            )
            sent_at = entry.facts.extra.get("arrived_at", entry.at)
            if fenced and at is not None and at < sent_at:
                cases.append(
                    f"{entry.api} of {mine.transactional_id} with epoch {mine.epoch} was accepted after {epoch} began"
                )
                break
    return found(Anomaly.ZOMBIE, cases)


def begun_again(history: History) -> list[Finding]:
    """zombie-write: sent with an epoch whose transaction had ended, and taken: it begins another one that nobody ends.

    For subjects with an epoch for every transaction only.
    """
    ends: dict[tuple[int, int], float] = {}
    for entry in history.of("end_txn"):
        mine = entry.facts
        if entry.acknowledged and entry.answered_at and mine.producer_id is not None and mine.epoch is not None:
            ended = ends.setdefault((mine.producer_id, mine.epoch), entry.answered_at)
            ends[mine.producer_id, mine.epoch] = min(ended, entry.answered_at)
    cases = []
    for entry in history.of("produce", "txn_offset_commit", "add_partitions_to_txn", "add_offsets_to_txn"):
        at = ends.get((entry.facts.producer_id or 0, entry.facts.epoch if entry.facts.epoch is not None else -1))
        if at is not None and entry.acknowledged and entry.at > at:
            cases.append(f"{entry.api} of epoch {entry.facts.epoch} was sent and taken after its transaction had ended")
    return found(Anomaly.ZOMBIE, cases)
