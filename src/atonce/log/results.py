"""What a partition log takes and gives back. Values only."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from atonce.log.storage import File


class Isolation(enum.IntEnum):
    """As on the wire in Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AppendOrigin(enum.Enum):
    """Who wrote the batch: clients are checked strictly, the broker's own coordinators are trusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """Where an append went, or where it had gone the first time (`duplicate`)."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 under CreateTime, as in the Produce response
    log_start_offset: int
    duplicate: bool = False
    # The ack must wait until `flushed_offset` > `last_offset` (a duplicate of an unsynced batch waits as well).
    flush_required: bool = False


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A byte range of a segment. `data` is there when a few bytes were read anyway (to verify them)."""

    file: File
    position: int
    length: int
    data: bytes | None = None

    def __len__(self) -> int:
        return self.length

    def part(self, start: int, length: int) -> FileSlice:
        data = None if self.data is None else self.data[start : start + length]
        return FileSlice(self.file, self.position + start, length, data)

    def read(self) -> bytes:
        return self.data if self.data is not None else self.file.pread(self.position, self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Batches from the one that holds the fetch offset on; the last may be cut by `max_bytes`, as in Kafka."""

    slices: tuple[FileSlice, ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # (producer id, first offset) of every aborted transaction in the range; filled under READ_COMMITTED only.
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        return sum(part.length for part in self.slices)

    def read(self) -> bytes:
        if len(self.slices) == 1:
            return self.slices[0].read()
        return b"".join(part.read() for part in self.slices)


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """One record's place in time, as ListOffsets answers."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where a leader epoch ends, as OffsetForLeaderEpoch answers; -1, -1 when it is unknown."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInfo:
    """One producer as DescribeProducers shows it; -1 where there is nothing."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """An aborted transaction in one partition: its first offset, its marker's offset, the LSO after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class VerificationGuard:
    """The right to begin a transaction in this partition. It ends with the first append or marker of its producer,

    so a Produce that was verified with the coordinator but arrives after the marker cannot leave a hanging transaction.
    """

    __slots__ = ()
