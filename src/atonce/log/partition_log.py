"""One partition's durable log: append, flush, read, and what keeps them true over a crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atonce.log.config import LogConfig
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
from atonce.log.storage import Buffer, Storage

Clock = Callable[[], int]


class PartitionLog:
    """All methods raise `atonce.log.errors.LogError` subclasses (with a Kafka `code`) when they refuse.

    Threads: one writer (append, append_marker, start_verification, update_config, delete_records), one flusher (flush),
    any readers, one cleaner (enforce_retention, compact). `on_high_watermark` is called, on the thread that moved it,
    without a lock held.
    """

    config: LogConfig
    directory: str
    on_high_watermark: Callable[[], None] | None

    @classmethod
    def open(cls, storage: Storage, directory: str, config: LogConfig, clock: Clock) -> PartitionLog:
        """Create or recover. Raises `CorruptLogError` if something below the recovery point is missing or damaged."""

    def append(
        self,
        buffer: Buffer,
        *,
        leader_epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append the batches in `buffer` (a client's: exactly one). All of it or nothing.

        A transactional client batch that would begin a transaction needs the guard from `start_verification`
        (else InvalidTxnState). Origin COORDINATOR (offset commits, journals) skips that and sequence checks.
        """

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

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Before a transactional Produce: None if its transaction is already open here (append without a guard),

        else a guard to pass to `append` after the coordinator said that the partition is in the transaction.
        """

    def flush(self) -> int:
        """Sync everything appended so far with one fdatasync; returns the flushed offset (also `flushed_offset`).

        A failure takes the partition offline (PartitionOffline) until restart.
        """

    def flush_due(self) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush now (for the broker's periodic task)."""

    def sync_recovery_point(self) -> None:
        """Sync the recovery point if it lies unsynced. For the flusher when it is idle; cheap when there is nothing."""

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

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """The end of what is synced."""

    @property
    def high_watermark(self) -> int:
        """`flushed_offset` if `flush.messages` is 1, else `log_end_offset`: no one sees what a crash can take back."""

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def is_offline(self) -> bool: ...

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after the timestamp, below the log end offset (the caller checks its isolation)."""

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp; None in an empty log."""

    def epoch_end_offset(self, leader_epoch: int) -> EpochEnd: ...

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 in an empty log."""

    def producers(self) -> Sequence[ProducerInfo]: ...

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool: ...

    def delete_records(self, before: int) -> int:
        """Move the log start offset (-1: to the high watermark), durably; returns it. OffsetOutOfRange beyond."""

    def enforce_retention(self) -> int:
        """Delete whole segments by retention.ms, retention.bytes and log start offset; returns how many."""

    def compact(self, *, force: bool = False) -> bool:
        """Clean if the dirty part is large enough (`force`: if there is any); returns whether it did."""

    def expire_producers(self) -> int:
        """Forget producers idle for `producer.id.expiration.ms`; returns how many."""

    def update_config(self, config: LogConfig) -> None: ...

    def close(self) -> None:
        """Flush and leave a clean state: the next open scans nothing."""

    def abandon(self) -> None:
        """Let go of the files without writing anything (a deleted topic, an offline partition)."""
