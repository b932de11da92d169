"""Committed offsets of all groups, and those that wait in open transactions.

An offset committed in a transaction is pending until the marker; a commit then makes it visible unless a later plain
commit has overtaken it in the journal, an abort drops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from atonce.coordinator.decision import ProducerIdAndEpoch, TopicPartition
from atonce.coordinator.groups.records import CommittedOffset, OffsetRecord


@dataclass(frozen=True, slots=True)
class _Entry:
    committed: CommittedOffset
    order: int  # its place in the journal


class Offsets:
    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, _Entry]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], _Entry]] = {}
        self._order = 0

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        entry = self._committed.get(group_id, {}).get(partition)
        return None if entry is None else entry.committed

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return {p: entry.committed for p, entry in self._committed.get(group_id, {}).items()}

    def groups(self) -> Iterable[str]:
        return self._committed.keys()

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset."""
        return any((group_id, partition) in pending for pending in self._pending.values())

    def has_pending(self, group_id: str) -> bool:
        return any(group_id == group for pending in self._pending.values() for group, _ in pending)

    def pending_of_group(self, group_id: str) -> list[TopicPartition]:
        return [key[1] for pending in self._pending.values() for key in pending if key[0] == group_id]

    def pending_of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        return [key for pending in self._pending.values() for key in pending if key[1].topic == topic]

    def apply(self, record: OffsetRecord, producer: ProducerIdAndEpoch | None) -> None:
        self._order += 1
        partition = TopicPartition(record.topic, record.partition)
        if record.committed is None:
            self._remove(record.group_id, partition)
        elif producer is None:
            self._committed.setdefault(record.group_id, {})[partition] = _Entry(record.committed, self._order)
        else:
            pending = self._pending.setdefault(producer.producer_id, {})
            pending[(record.group_id, partition)] = _Entry(record.committed, self._order)

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        self._order += 1
        pending = self._pending.pop(producer_id, {})
        if not commit:
            return
        for (group_id, partition), entry in pending.items():
            committed = self._committed.setdefault(group_id, {})
            overtaken = partition in committed and committed[partition].order > entry.order
            if not overtaken:
                committed[partition] = entry

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        committed = self._committed.get(group_id, {})
        committed.pop(partition, None)
        if not committed:
            self._committed.pop(group_id, None)
        for producer_id, pending in list(self._pending.items()):
            pending.pop((group_id, partition), None)
            if not pending:
                del self._pending[producer_id]
