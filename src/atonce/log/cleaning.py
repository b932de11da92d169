"""Which records a compacted log keeps: Kafka's cleaner, batch by batch.

- Of each key the newest record stays. Offsets never change; batches keep their first and last offset.
- A tombstone (null value) stays for `delete.retention.ms` after it was first cleaned, so that readers see the deletion.
  The time at which it may go is written into its batch in place of the base timestamp (the delete horizon).
- Records of aborted transactions go at once. A marker goes, after the same time, once none of its records are left.
- The last batch of every active producer stays, if only as an empty header, so that its sequence survives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from atonce.log.producer_state import NO_OFFSET, ProducerEntry
from atonce.log.results import AbortedTxn
from atonce.records.batch import COMPRESSION_MASK, BatchHeader, InvalidBatch, assemble, attributes
from atonce.records.compression import DecompressionFailed, compress
from atonce.records.record import Record, decode_record, decompressed, encode_record, read_marker, record_bounds


@dataclass(slots=True)
class TransactionsSeen:
    """Follows a walk over the batches in order and says which of them belong to aborted transactions."""

    waiting: list[AbortedTxn]
    aborting: dict[int, AbortedTxn] = field(default_factory=dict)
    with_data: set[int] = field(default_factory=set)
    committing: set[int] = field(default_factory=set)
    # Aborted transactions of which something was still there.
    kept: list[AbortedTxn] = field(default_factory=list)

    @classmethod
    def of(cls, aborted: Iterable[AbortedTxn]) -> TransactionsSeen:
        return cls(sorted(aborted, key=lambda txn: txn.first_offset, reverse=True))

    def is_aborted(self, header: BatchHeader) -> bool:
        """For a data batch."""
        self._begin_until(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self.aborting:
            self.with_data.add(header.producer_id)
            return True
        self.committing.add(header.producer_id)
        return False

    def is_marker_of_nothing(self, header: BatchHeader, batch: memoryview) -> bool:
        """For a control batch: none of its transaction's records were met on this walk."""
        self._begin_until(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_marker(batch)
        if marker is None:
            return False
        producer = header.producer_id
        if marker.commit:
            met = producer in self.committing
            self.committing.discard(producer)
            return not met
        txn = self.aborting.pop(producer, None)
        if txn is not None and producer in self.with_data:
            self.with_data.discard(producer)
            self.kept.append(txn)
            return False
        return True

    def _begin_until(self, offset: int) -> None:
        while self.waiting and self.waiting[-1].first_offset <= offset:
            txn = self.waiting.pop()
            self.aborting[txn.producer_id] = txn


@dataclass(frozen=True, slots=True)
class Cleaner:
    """One pass: `newest` maps each key of the dirty part to its newest offset."""

    newest: dict[bytes, int]
    end_offset: int
    transactions: TransactionsSeen
    producers: dict[int, ProducerEntry]
    now_ms: int
    delete_retention_ms: int
    most_bytes: int  # that may come out of a batch; what becomes more stays as it is

    def clean(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """The batch as it stays in the log: itself, a smaller one, or None."""
        horizon = header.delete_horizon_ms
        past_horizon = horizon is not None and self.now_ms >= horizon
        if header.is_control:
            nothing = self.transactions.is_marker_of_nothing(header, batch)
            if not nothing:
                return batch
            if past_horizon or header.record_count == 0:
                return self._emptied(header)
            return batch if horizon is not None else self._with_horizon(header, batch)
        if self.transactions.is_aborted(header):
            return self._emptied(header)
        if header.record_count == 0:
            return self._emptied(header)
        try:
            return self._filtered(header, batch, past_horizon)
        except (InvalidBatch, DecompressionFailed):
            return batch  # nobody can tell what is in it: nothing of it may be lost

    def _filtered(self, header: BatchHeader, batch: memoryview, past_horizon: bool) -> bytes | memoryview | None:
        body = decompressed(batch, header, limit=self.most_bytes)
        kept: list[tuple[int, int, Record]] = []
        tombstones = False
        for start, end in record_bounds(body, header.record_count):
            record = decode_record(body, start, end, header.base_offset, header.base_timestamp)
            if not self._stays(record, past_horizon):
                continue
            tombstones = tombstones or record.value is None
            kept.append((start, end, record))
        if not kept:
            return self._emptied(header)
        needs_horizon = tombstones and header.delete_horizon_ms is None
        if len(kept) == header.record_count and not needs_horizon:
            return batch
        return self._rebuilt(header, [record for _, _, record in kept], needs_horizon)

    def _stays(self, record: Record, past_horizon: bool) -> bool:
        if record.offset >= self.end_offset:
            return True
        if record.key is None:
            return False
        if self.newest.get(record.key, NO_OFFSET) > record.offset:
            return False
        return record.value is not None or not past_horizon

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """Nothing of it stays, unless it holds its producer's last sequence."""
        entry = self.producers.get(header.producer_id) if header.has_producer else None
        if entry is None:
            return None
        if entry.last_data_offset != NO_OFFSET:
            needed = header.last_offset == entry.last_data_offset
        else:
            needed = header.is_control and header.producer_epoch == entry.epoch
        if not needed:
            return None
        plain = header.attributes & ~COMPRESSION_MASK  # no codec can unpack nothing
        return assemble(header._replace(record_count=0, attributes=plain), b"")

    def _with_horizon(self, header: BatchHeader, batch: memoryview) -> bytes:
        body = decompressed(batch, header)
        records = [
            decode_record(body, start, end, header.base_offset, header.base_timestamp)
            for start, end in record_bounds(body, header.record_count)
        ]
        return self._rebuilt(header, records, True)

    def _rebuilt(self, header: BatchHeader, records: list[Record], needs_horizon: bool) -> bytes:
        base = self.now_ms + self.delete_retention_ms if needs_horizon else header.base_timestamp
        body = bytearray()
        for record in records:
            offset_delta = record.offset - header.base_offset
            encode_record(body, offset_delta, record.timestamp_ms - base, record.key, record.value, record.headers)
        latest = header.max_timestamp
        if not header.is_log_append_time:
            latest = max(record.timestamp_ms for record in records)
        changed = header._replace(
            attributes=header.attributes | attributes(delete_horizon=needs_horizon),
            base_timestamp=base,
            max_timestamp=latest,
            record_count=len(records),
        )
        return assemble(changed, compress(header.compression, body))
