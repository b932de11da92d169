"""The records of `__transaction_state`, in Kafka's formats (TransactionLogKey 0, TransactionLogValue 1).

Two additions of ours, both of which Kafka's readers pass over: the last producer epoch as a tagged field, so that the
retry of an InitProducerId is answered alike after a restart; and the producer ids handed out, under a key type of
their own (Kafka keeps those in its metadata log).
"""

from __future__ import annotations

from dataclasses import dataclass

from atonce.coordinator.decision import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, JournalRecord, TopicPartition
from atonce.coordinator.groups.states import TransactionState
from atonce.coordinator.wire import Reader, Writer
from atonce.errors import CorruptLogError

_TRANSACTION_KEY = 0
_PRODUCER_IDS_KEY = 1000
_VALUE_VERSION = 1
PRODUCER_IDS = "the producer ids that were handed out"
_TAG_PREVIOUS, _TAG_NEXT, _TAG_CLIENT_VERSION, _TAG_LAST_EPOCH = 0, 1, 2, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """All there is to know of one transactional id. A transition makes a new one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The new state of a transactional id; none: it is forgotten."""

    transactional_id: str
    metadata: TransactionMetadata | None


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Every producer id below `next_producer_id` may have been handed out."""

    next_producer_id: int


def encode(record: object) -> JournalRecord:
    if isinstance(record, ProducerIdsRecord):
        value = Writer(0).i64(record.next_producer_id).done()
        return JournalRecord(Writer(_PRODUCER_IDS_KEY).done(), value)
    if not isinstance(record, TransactionRecord):
        raise TypeError(f"{record!r} is no record of __transaction_state")
    key = Writer(_TRANSACTION_KEY).string(record.transactional_id).done()
    return JournalRecord(key, None if record.metadata is None else _encode_metadata(record.metadata))


def decode(record: JournalRecord) -> object | None:
    """The typed record, or None for one of a kind that is not known: written by a newer version, and skipped."""
    key = Reader(record.key)
    if key.version == _PRODUCER_IDS_KEY and record.value is not None:
        return ProducerIdsRecord(Reader(record.value).i64())
    if key.version != _TRANSACTION_KEY:
        return None
    transactional_id = key.string()
    if record.value is None:
        return TransactionRecord(transactional_id, None)
    return TransactionRecord(transactional_id, _decode_metadata(transactional_id, record.value))


def name_of(key: bytes) -> str | None:
    """What a key speaks of, for people; None if it is none of ours."""
    try:
        reader = Reader(key)
        if reader.version == _PRODUCER_IDS_KEY:
            return PRODUCER_IDS
        return f"transactional id {reader.string()!r}" if reader.version == _TRANSACTION_KEY else None
    except (CorruptLogError, UnicodeDecodeError):
        return None


def _encode_metadata(metadata: TransactionMetadata) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    writer = Writer(_VALUE_VERSION, flexible=True)
    writer.i64(metadata.producer_id).i16(metadata.producer_epoch).i32(metadata.timeout_ms).i8(metadata.state)
    writer.array(
        None if metadata.state is TransactionState.EMPTY else topics.items(),
        lambda w, item: w.string(item[0]).array(item[1], Writer.i32).tags(),
    )
    writer.i64(metadata.last_update_ms).i64(metadata.start_ms)
    tags = {
        _TAG_PREVIOUS: Writer.tag().i64(metadata.previous_producer_id).done(),
        _TAG_NEXT: Writer.tag().i64(metadata.next_producer_id).done(),
        _TAG_CLIENT_VERSION: Writer.tag().i16(metadata.client_version).done(),
        _TAG_LAST_EPOCH: Writer.tag().i16(metadata.last_producer_epoch).done(),
    }
    return writer.tags(tags).done()


def _decode_metadata(transactional_id: str, value: bytes) -> TransactionMetadata:
    reader = Reader(value, flexible_from=1)
    if reader.version > _VALUE_VERSION:
        raise CorruptLogError(
            f"transactional id {transactional_id!r} was journaled in version {reader.version}, "
            f"and this broker reads up to {_VALUE_VERSION}; start the newer broker again"
        )
    producer_id, epoch, timeout_ms, state = reader.i64(), reader.i16(), reader.i32(), reader.i8()

    def topic(r: Reader) -> tuple[str, list[int]]:
        name, partitions = r.string(), r.array(Reader.i32)
        if reader.version >= 1:
            r.tags()
        return name, partitions

    topics = reader.array(topic)
    last_update_ms, start_ms = reader.i64(), reader.i64()
    tags = reader.tags() if reader.version >= 1 else {}

    def tagged(number: int, read: str, default: int) -> int:
        content = tags.get(number)
        return default if content is None else int(getattr(Reader.tag(content), read)())

    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(state),
        last_update_ms=last_update_ms,
        previous_producer_id=tagged(_TAG_PREVIOUS, "i64", NO_PRODUCER_ID),
        next_producer_id=tagged(_TAG_NEXT, "i64", NO_PRODUCER_ID),
        last_producer_epoch=tagged(_TAG_LAST_EPOCH, "i16", NO_PRODUCER_EPOCH),
        partitions=frozenset(TopicPartition(name, p) for name, partitions in topics for p in partitions),
        start_ms=start_ms,
        client_version=tagged(_TAG_CLIENT_VERSION, "i16", 0),
    )
