"""Producer ids: handed out in blocks, a block journaled before its first id is used, no id ever handed out twice."""

from __future__ import annotations

from atonce.coordinator.transactions.records import ProducerIdsRecord

BLOCK_SIZE = 1000


class ProducerIds:
    def __init__(self) -> None:
        self._next = 0
        self._block_end = 0

    def allocate(self) -> tuple[int, tuple[ProducerIdsRecord, ...]]:
        """A new id, and the record to journal before it is told to anyone.

        An id whose decision is then not journaled is lost, which harms nobody: ids are plenty.
        """
        producer_id = self._next
        self._next += 1
        if producer_id < self._block_end:
            return producer_id, ()
        return producer_id, (ProducerIdsRecord(producer_id + BLOCK_SIZE),)

    def apply(self, record: ProducerIdsRecord) -> None:
        self._block_end = max(self._block_end, record.next_producer_id)

    def recovered(self) -> None:
        """Which ids of the last block were used is not known: begin a new one."""
        self._next = self._block_end
