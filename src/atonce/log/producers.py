"""All producers of one partition: their entries, open transactions, and the first unstable offset.

A transaction stays *unstable* until its marker is below the high watermark: if a crash could still take the marker
back, nobody may have seen what it decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from atonce.log.producer_state import NO_OFFSET, ProducerEntry, Verification
from atonce.log.results import AbortedTxn, ProducerInfo, VerificationGuard


@dataclass(slots=True)
class Producers:
    """Changed only by `put`, `complete` and `remove`, after the bytes they stand for are written."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    # first offset → producer id; insertion order is offset order because offsets only grow.
    open_txns: dict[int, int] = field(default_factory=dict)
    # (first offset, marker's offset) of ended transactions whose marker is not below the high watermark yet.
    ended: list[tuple[int, int]] = field(default_factory=list)
    verifications: dict[int, Verification] = field(default_factory=dict)

    @classmethod
    def restore(cls, entries: Iterable[ProducerEntry]) -> Producers:
        restored = cls({entry.producer_id: entry for entry in entries})
        began = sorted((e.txn_first_offset, e.producer_id) for e in restored.entries.values() if e.in_transaction)
        restored.open_txns = dict(began)
        return restored

    def get(self, producer_id: int) -> ProducerEntry:
        return self.entries.get(producer_id) or ProducerEntry(producer_id)

    def put(self, entry: ProducerEntry) -> None:
        """An entry after data; begins its transaction if it has one that is new."""
        self.entries[entry.producer_id] = entry
        if entry.txn_first_offset != NO_OFFSET:
            self.open_txns.setdefault(entry.txn_first_offset, entry.producer_id)
            self.verifications.pop(entry.producer_id, None)

    def complete(self, after: ProducerEntry, marker_offset: int, *, commit: bool) -> AbortedTxn | None:
        """An entry after its marker; what the transaction index must hold if the marker aborted something."""
        first_offset = self.get(after.producer_id).txn_first_offset
        self.entries[after.producer_id] = after
        self.verifications.pop(after.producer_id, None)
        if first_offset == NO_OFFSET:
            return None
        self.open_txns.pop(first_offset, None)
        self.ended.append((first_offset, marker_offset))
        if commit:
            return None
        stable = next(iter(self.open_txns), marker_offset + 1)
        return AbortedTxn(after.producer_id, first_offset, marker_offset, stable)

    def high_watermark_moved(self, high_watermark: int) -> None:
        if self.ended and self.ended[0][1] < high_watermark:
            self.ended = [txn for txn in self.ended if txn[1] >= high_watermark]

    @property
    def first_unstable_offset(self) -> int | None:
        first = next(iter(self.open_txns), None)
        for first_offset, _ in self.ended:
            if first is None or first_offset < first:
                first = first_offset
        return first

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """See PartitionLog.start_verification."""
        entry = self.entries.get(producer_id)
        if entry is not None and entry.in_transaction and entry.epoch == producer_epoch:
            return None
        known = self.verifications.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch:
            lowest = min(sequence, known.lowest_sequence)
            guard = known.guard
        else:
            lowest, guard = sequence, VerificationGuard()
        self.verifications[producer_id] = Verification(guard, producer_epoch, lowest, supports_epoch_bump, now_ms)
        return guard if isinstance(guard, VerificationGuard) else None

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget idle producers, and guards that nobody used; one with an open transaction is never idle."""
        for producer_id, waiting in list(self.verifications.items()):
            if now_ms - waiting.since_ms >= after_ms:
                del self.verifications[producer_id]
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            if not entry.in_transaction and now_ms - entry.last_append_ms >= after_ms
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        return len(idle)

    def describe(self) -> list[ProducerInfo]:
        return [
            ProducerInfo(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp_ms=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.txn_first_offset,
            )
            for entry in self.entries.values()
        ]
