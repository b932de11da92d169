"""A coordinator's journal: the one partition of an internal topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atonce.broker.partition import Partition
from atonce.coordinator.decision import JournalBatch, JournalRecord, ProducerIdAndEpoch, StorageFailed
from atonce.errors import AtOnceError
from atonce.log.errors import LogError
from atonce.log.results import AppendOrigin
from atonce.records.batch import BatchHeader, iter_batches
from atonce.records.record import build_batch, iter_records, read_marker

_READ_BYTES = 4 * 1024 * 1024
# Our own batches are not compressed: a stranger's may not become more than this.
_MOST_BYTES = 64 * 1024 * 1024


class PartitionJournal:
    """`atonce.coordinator.decision.Journal` over a partition."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def append(
        self, records: Sequence[JournalRecord], *, now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        pairs = [(record.key, record.value) for record in records]
        if producer is None:
            batch = build_batch(pairs, timestamp_ms=now_ms)
        else:
            batch = build_batch(
                pairs,
                timestamp_ms=now_ms,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transactional=True,
            )
        try:
            self._partition.append(batch, origin=AppendOrigin.COORDINATOR)
        except LogError as error:
            raise StorageFailed(str(error)) from error

    def append_marker(self, producer: ProducerIdAndEpoch, commit: bool, *, coordinator_epoch: int, now_ms: int) -> None:
        try:
            self._partition.append_marker(
                producer.producer_id,
                producer.epoch,
                commit,
                coordinator_epoch=coordinator_epoch,
                # The epochs of a transaction are the transaction coordinator's business; it has checked them.
                transaction_version=0,
            )
        except LogError as error:
            raise StorageFailed(str(error)) from error

    async def flush(self) -> None:
        log = self._partition.log
        if log.is_offline or log.flushed_offset < log.log_end_offset:
            try:
                await self._partition.durable(log.log_end_offset - 1)
            except LogError as error:
                raise StorageFailed(str(error)) from error

    def replay(self) -> Iterator[JournalBatch]:
        log = self._partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, _READ_BYTES, beyond_high_watermark=True).read()
            before = offset
            for position, header in iter_batches(data):
                if header.next_offset <= offset:
                    continue
                offset = header.next_offset
                yield journal_batch(header, memoryview(data)[position : position + header.size])
            if offset == before:
                raise StorageFailed(f"{log.directory}: nothing to read at offset {offset} of {log.log_end_offset}")


def journal_batch(header: BatchHeader, batch: memoryview) -> JournalBatch:
    """One batch as its coordinator reads it; a stranger's may have the right checksum and still not add up."""
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    try:
        if header.is_control:
            marker = read_marker(batch)
            return JournalBatch((), producer, None if marker is None else marker.commit, header.base_offset)
        records = tuple(
            JournalRecord(one.key or b"", one.value, one.offset) for one in iter_records(batch, limit=_MOST_BYTES)
        )
    except AtOnceError as error:
        return JournalBatch((), offset=header.base_offset, unreadable=str(error))
    return JournalBatch(records, producer if header.is_transactional else None, offset=header.base_offset)
