"""What a partition log answers when it does not do what was asked. Each class is one Kafka error code.

LogError (code = Kafka's error code)
├── the reader:   OffsetOutOfRange 1
├── the writer:   MessageTooLarge 10, RecordListTooLarge 18, InvalidTimestamp 32, InvalidRecord 87, CorruptMessage 2
├── idempotence:  OutOfOrderSequence 45, InvalidProducerEpoch 47
├── transactions: InvalidTxnState 48, TransactionCoordinatorFenced 52
└── the disk:     KafkaStorageError 56 (retriable: cut back, the partition goes on), PartitionOffline 56 (until restart)

`atonce.errors.CorruptLogError` is not among them: it stops a log from being opened and has no code on the wire.
"""

from __future__ import annotations

from atonce.errors import AtOnceError


class LogError(AtOnceError):
    """Base: an append, a read or a marker that was refused; nothing changed."""

    code: int = -1
    retriable: bool = False


class OffsetOutOfRange(LogError):
    """The offset is below the log start offset or above the log end offset."""

    code = 1


class CorruptMessage(LogError):
    """A checksum does not match: on append the peer's bytes, on read the disk's."""

    code = 2
    retriable = True


class MessageTooLarge(LogError):
    """A batch is larger than `max.message.bytes`."""

    code = 10


class RecordListTooLarge(LogError):
    """An append is larger than a whole segment."""

    code = 18


class InvalidTimestamp(LogError):
    """A timestamp is further from now than `message.timestamp.before/after.max.ms` allows."""

    code = 32


class OutOfOrderSequence(LogError):
    """A gap in a producer's sequence numbers."""

    code = 45


class InvalidProducerEpoch(LogError):
    """The producer was fenced by a newer epoch."""

    code = 47


class InvalidTxnState(LogError):
    """A write that does not fit the state of the producer's transaction in this partition."""

    code = 48


class TransactionCoordinatorFenced(LogError):
    """A marker from a coordinator that has been replaced."""

    code = 52


class KafkaStorageError(LogError):
    """The disk refused a write. What was half written was cut back; the partition stays online."""

    code = 56
    retriable = True


class PartitionOffline(KafkaStorageError):
    """An fsync failed: nobody knows what is on disk. The partition answers nothing until restart."""


class InvalidRecord(LogError):
    """A batch that breaks the format, or that a client may not write."""

    code = 87
