"""One partition's durable log: append, flush, read, and what keeps them true over a crash.

What is promised:

- Acknowledged means synced: an append is acknowledged, and served, once `flush` has passed it (`flush.messages` = 1).
  `flush.messages` and `flush.ms` make it lazier; then a killed process loses nothing, a power cut what was not flushed.
- What was acknowledged is remembered in the recovery point, synced before the acknowledgement. At open, a log that is
  shorter, or damaged in what is scanned below it, is refused with file and position. What lies beyond is cut at the
  first batch that is not whole.
- Older batches are verified when they are first read after a restart; a damaged one is refused (CorruptMessage), so a
  restart takes as long on 5 GB as on 50 MB and nothing damaged is ever served.
- A failed write is cut back and answered with a retriable error; a failed fsync takes the partition offline for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atonce.log import appending, compaction, flushing, reading, retention, validation
from atonce.log.config import LogConfig
from atonce.log.recovery import open_log, prepare_log
from atonce.log.results import (
    AppendOrigin,
    AppendResult,
    EpochEnd,
    Isolation,
    ProducerInfo,
    ReadResult,
    TimestampOffset,
    VerificationGuard,
)
from atonce.log.state import Clock, LogState
from atonce.log.storage import Buffer, Storage
from atonce.log.validation import Incoming


class PartitionLog:
    """All methods raise `atonce.log.errors.LogError` subclasses (with a Kafka `code`) when they refuse.

    Threads: one writer (append, append_marker, start_verification, update_config), one flusher (flush), any readers,
    one cleaner (delete_records, enforce_retention, compact). `on_high_watermark` is called, on the thread that moved
    it, without the state's lock held.
    """

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.on_high_watermark: Callable[[], None] | None = None

    @classmethod
    def open(cls, storage: Storage, directory: str, config: LogConfig, clock: Clock) -> PartitionLog:
        """Create or recover. Raises `CorruptLogError` if something below the recovery point is missing or damaged."""
        return cls(open_log(storage, directory, config, clock))

    @staticmethod
    def prepare(storage: Storage, directory: str) -> None:
        """Write the files of a new log without syncing them: `storage.sync_all()`, then `open`."""
        prepare_log(storage, directory)

    # -- writing

    def append(
        self,
        buffer: Buffer,
        *,
        leader_epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        accepted: Sequence[Incoming] | None = None,
    ) -> AppendResult:
        """Append the batches in `buffer` (a client's: exactly one). All of it or nothing.

        `accepted` is what `accept` or `accept_quickly` has said of the same buffer.

        A transactional client batch that would begin a transaction needs the guard from `start_verification`
        (else InvalidTxnState). Origin COORDINATOR (offset commits, journals) skips that and sequence checks.
        """
        result = appending.append(self._state, buffer, leader_epoch, origin, guard, accepted)
        self._after_append()
        return result

    def accept(self, buffer: Buffer) -> Sequence[Incoming]:
        """Look at a client's batch before it is appended; from any thread. Raises what `append` would."""
        return validation.accept(buffer, self._state.config, AppendOrigin.CLIENT, self._state.clock())

    def accept_quickly(self, buffer: Buffer) -> Sequence[Incoming] | None:
        """The same for a small compressed batch, None if too much comes out of it to be looked at right here."""
        return validation.accept_quickly(buffer, self._state.config, self._state.clock())

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        leader_epoch: int = 0,
        transaction_version: int = 0,
    ) -> AppendResult:
        """End the producer's transaction here. Under version 2 the epoch must be newer than the transaction's own."""
        result = appending.append_marker(
            self._state,
            producer_id,
            producer_epoch,
            commit,
            coordinator_epoch,
            leader_epoch=leader_epoch,
            transaction_version=transaction_version,
        )
        self._after_append()
        return result

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Before a transactional Produce: None if its transaction is already open here (append without a guard),

        else a guard to pass to `append` after the coordinator said that the partition is in the transaction.
        """
        with self._state.lock:
            return self._state.producers.start_verification(
                producer_id,
                producer_epoch,
                sequence,
                supports_epoch_bump=supports_epoch_bump,
                now_ms=self._state.clock(),
            )

    def _after_append(self) -> None:
        """Without flush-before-ack an append moves the high watermark by itself."""
        state = self._state
        if not state.config.flush_before_ack:
            with state.lock:
                state.producers.high_watermark_moved(state.high_watermark)
            self._high_watermark_moved()

    def _high_watermark_moved(self) -> None:
        if self.on_high_watermark is not None:
            self.on_high_watermark()

    # -- durability

    def flush(self) -> int:
        """Sync everything appended so far, then the recovery point; returns the flushed offset (also `flushed_offset`).

        A failure takes the partition offline (PartitionOffline) until restart.
        """
        before = self._state.flushed.offset
        flushed = flushing.flush(self._state)
        if flushed != before:
            self._high_watermark_moved()
        return flushed

    def flush_due(self) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush now (for the broker's periodic task).

        However lazy they are, one is due after a segment roll or `checkpoint_bytes`: it bounds what a restart scans.
        """
        state = self._state
        waiting = state.log_end_offset - state.flushed.offset
        if waiting <= 0:
            return False
        if state.rolled or flushing.checkpoint_due(state):
            return True
        return waiting >= state.config.flush_messages or state.clock() - state.last_flush_ms >= state.config.flush_ms

    def close(self) -> None:
        """Flush and leave a clean state: the next open scans nothing."""
        state = self._state
        if state.offline is None:
            flushing.flush(state, checkpoint=state.checkpoint_offset != state.log_end_offset)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the log without writing anything (a deleted topic, an offline partition)."""
        if self._state.offline is None:
            self._state.offline = f"{self._state.layout.directory}: the log is closed"

    # -- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one_batch: bool = True,
        beyond_high_watermark: bool = False,
    ) -> ReadResult:
        """Up to high watermark (READ_UNCOMMITTED) or last stable offset (READ_COMMITTED); empty at the end.

        `beyond_high_watermark` is for coordinators that load their own journal. OffsetOutOfRange outside of
        [log_start_offset, log_end_offset]; CorruptMessage (file and position named) if the disk damaged a batch.
        """
        return reading.read(
            self._state,
            offset,
            max_bytes,
            isolation,
            min_one_batch=min_one_batch,
            beyond_high_watermark=beyond_high_watermark,
        )

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after the timestamp, below the log end offset (the caller checks its isolation)."""
        return reading.offset_for_timestamp(self._state, timestamp_ms)

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp; None in an empty log."""
        return reading.max_timestamp(self._state)

    def epoch_end_offset(self, leader_epoch: int) -> EpochEnd:
        """Where the epoch, or the newest one before it, ended; -1, -1 if it is newer than all."""
        with self._state.lock:
            return self._state.epochs.end_of(leader_epoch, self._state.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 in an empty log."""
        return self._state.epochs.latest

    # -- positions

    @property
    def directory(self) -> str:
        return self._state.layout.directory

    @property
    def config(self) -> LogConfig:
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._state.log_end_offset

    @property
    def flushed_offset(self) -> int:
        """The end of what is synced."""
        return self._state.flushed.offset

    @property
    def high_watermark(self) -> int:
        """`flushed_offset` if `flush.messages` is 1, else `log_end_offset`: no one sees what a crash can take back."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Everything below belongs to no transaction, or to one whose outcome is durable."""
        with self._state.lock:
            return self._state.last_stable_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments)

    @property
    def segment_count(self) -> int:
        return len(self._state.segments)

    @property
    def is_offline(self) -> bool:
        return self._state.offline is not None

    # -- producers

    def producers(self) -> Sequence[ProducerInfo]:
        """Every producer that is remembered here."""
        with self._state.lock:
            return self._state.producers.describe()

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        with self._state.lock:
            entry = self._state.producers.get(producer_id)
            return entry.in_transaction and entry.epoch == producer_epoch

    def expire_producers(self) -> int:
        """Forget producers idle for `producer.id.expiration.ms`; returns how many."""
        state = self._state
        with state.lock:
            return state.producers.expire(state.clock(), state.config.producer_id_expiration_ms)

    # -- what leaves the log

    def delete_records(self, before: int) -> int:
        """Move the log start offset (-1: to the high watermark), durably; returns it. OffsetOutOfRange beyond."""
        return retention.delete_records(self._state, before)

    def enforce_retention(self) -> int:
        """Delete whole segments by retention.ms, retention.bytes and log start offset; returns how many."""
        return retention.enforce_retention(self._state)

    def retention_due(self) -> bool:
        """Whether `enforce_retention` has something to do; cheap."""
        return retention.retention_due(self._state)

    def compaction_due(self) -> bool:
        """Whether `compact` has something to do; cheap."""
        return compaction.compaction_due(self._state)

    def compact(self, *, force: bool = False) -> bool:
        """Clean if the dirty part is large enough (`force`: if there is any); returns whether it did."""
        return compaction.compact(self._state, force=force)

    def update_config(self, config: LogConfig) -> None:
        """Takes effect with the next call. What was served lazily is synced before the stricter rule holds."""
        if config.flush_before_ack and not self._state.config.flush_before_ack:
            self.flush()
        with self._state.lock:
            self._state.config = config
