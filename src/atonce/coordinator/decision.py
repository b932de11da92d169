"""What a coordinator decided: the answer, the records that make it so, and what has to follow once they are durable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from atonce.errors import RetriableError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

T = TypeVar("T")


class StorageFailed(RetriableError):
    """The journal could not take a record: nothing was written, nothing was decided."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


# One process, one coordinator: both internal topics have one partition, and one fsync serves every group.
OFFSETS_PARTITION = TopicPartition(CONSUMER_OFFSETS, 0)


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A key and a value in Kafka's own formats; no value is a tombstone."""

    key: bytes
    value: bytes | None
    offset: int = field(default=-1, compare=False)  # where it was read


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One batch read back. A `marker` (True: commit) ends the transaction of `producer` and has no records."""

    records: tuple[JournalRecord, ...]
    producer: ProducerIdAndEpoch | None = None
    marker: bool | None = None
    offset: int = -1
    unreadable: str | None = None  # why its records, which are left out, cannot be read


class Journal(Protocol):
    """The one partition of an internal topic, as its coordinator sees it."""

    def append(
        self, records: Sequence[JournalRecord], *, now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        """Append one batch, in call order, all or nothing; transactional if `producer` is given (no sequence number).

        Raises `StorageFailed` when nothing was written (full disk) or the partition is offline.
        """

    def append_marker(self, producer: ProducerIdAndEpoch, commit: bool, *, coordinator_epoch: int, now_ms: int) -> None:
        """Append the control batch that ends the producer's transaction in this partition; raises as `append` does."""

    async def flush(self) -> None:
        """Return when everything appended so far is durable; once that failed, raise `StorageFailed` for ever."""

    def replay(self) -> Iterator[JournalBatch]:
        """Every batch from the start of the log, in order, open and aborted transactions included."""


class Topics(Protocol):
    """The topics as the group coordinator must see them."""

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions, or None when there is no such topic."""

    def topic_id(self, topic: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Sequence[str]:
        """All topics, internal ones included."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The answer comes later, as an `Answer` effect with this token."""

    token: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers a request that was deferred."""

    token: int
    answer: object


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the markers of a decided transaction in every partition, flush them, then call `complete`."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int
    # One node, one leader for ever: our own markers carry a constant; an administrator's may come from before any.
    coordinator_epoch: int = 0


Effect = Answer | WriteMarkers


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """`records` are typed (see `journaled`); with `producer` they go into a transactional batch of that producer."""

    answer: T | Deferred
    records: tuple[object, ...] = ()
    effects: tuple[Effect, ...] = ()
    producer: ProducerIdAndEpoch | None = None
