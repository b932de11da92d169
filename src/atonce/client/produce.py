"""Sending encoded record batches: pipelined, in order, with the producer id and epoch that the driver gave.

A blob is a whole record batch (`atonce.records.encode`); the sender fills in producer id, epoch, sequence and
checksum. A partition's first batch goes alone, because the broker may still be busy with the transaction before
(CONCURRENT_TRANSACTIONS) or with adding the partition; the others follow in a pipeline. What fails in passing is sent
again in the same order with the same sequences, so that the broker can tell a repetition from a new batch.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import crc32c
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from atonce.backoff import Backoff
from atonce.client.answers import left_out
from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.errors import (
    LEADER_MOVED,
    Code,
    ConnectionLost,
    MustAbort,
    TryAgain,
    code_name,
    error_for,
    raise_for,
)
from atonce.client.retry import LONGEST_PAUSE_MS, retry
from atonce.client.wire import Wire
from atonce.errors import AttemptAborted, InvariantError, UndeliverableRow, UsageError

HEADER_BYTES = 61
TRANSACTIONAL = 0x10
MAX_SEQUENCE = 1 << 31
FLEXIBLE_FROM = 9
SEQUENCE_LOST = frozenset({Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID})
FIRST_PAUSE_MS = 3.0
ANSWER_GRACE_MS = 5_000
LEASH_CHECK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one partition got, and was acknowledged."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    first_offset: int = -1
    """-1 when nothing was sent, or when the broker does not say (acks=0, a repetition too old to be remembered)."""
    last_offset: int = -1
    failed_records: int = 0
    """Only without retries (at most once): records whose request failed and was not repeated."""


@dataclass(slots=True, eq=False)
class _Batch:
    head: bytearray
    body: memoryview
    count: int

    @property
    def size(self) -> int:
        return len(self.head) + len(self.body)


@dataclass(slots=True, eq=False)
class _Channel:
    """A connection to one leader, and whose answers are still to come, in order."""

    wire: Wire
    waiting: deque[tuple[_Lane, _Batch]] = field(default_factory=deque)
    lost: ConnectionLost | None = None


@dataclass(slots=True, eq=False)
class _Lane:
    """One partition: its next sequence, and what is not acknowledged yet, oldest first."""

    topic: str
    partition: int
    sequence: int = 0
    proved: bool = False
    """Its first batch has been acknowledged."""
    channel: _Channel | None = None
    in_flight: int = 0
    pending: deque[_Batch] = field(default_factory=deque)
    failure: TryAgain | ConnectionLost | None = None
    """Why pending batches must be sent again. Nothing new goes out before that is mended."""
    sent: Sent = field(default_factory=Sent)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Sender:
    """Writes for one task. Not thread-safe. Nothing is certain before `flush` has returned.

    transactional      transactional_id, producer_id and epoch of the driver's transaction
    idempotent         producer_id and epoch of `idempotent_producer`, no transactional_id
    plain              neither; with `retries=False` no request is ever repeated (at most once)

    `protocol`: of the transaction, 2 or 1 (its partitions have been added before).

    `should_stop` is asked before every step on the network; once it says yes, `AttemptAborted` is raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        producer_id: int = -1,
        epoch: int = -1,
        acks: int = -1,
        retries: bool = True,
        max_in_flight: int = 5,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        delivery_timeout_ms: int = 120_000,
        should_stop: Callable[[], bool] | None = None,
        protocol: int = 2,
    ) -> None:
        if transactional_id is not None and (producer_id < 0 or epoch < 0):
            # The broker would take it as plain data, visible at once and whatever becomes of the transaction.
            raise InvariantError(f"transaction {transactional_id!r} without a producer id: nothing was sent")
        if producer_id >= 0 and (acks != -1 or not retries or not 1 <= max_in_flight <= 5):
            raise UsageError("idempotent producing needs acks=all, retries, and at most five requests in flight")
        if acks not in (-1, 0, 1):
            raise UsageError(f"acks={acks} is not one of: all (-1), 1, 0")
        self._cluster = cluster
        self._transactional_id, self._producer_id, self._epoch = transactional_id, producer_id, epoch
        self._acks, self._retries, self._max_in_flight = acks, retries, max_in_flight
        self._timeout_ms, self._delivery_timeout_ms = timeout_ms, delivery_timeout_ms
        self._should_stop = should_stop
        # A Produce of version 12 adds its partition to the transaction by itself, whatever its epoch has become.
        self._versions = (3, 11) if protocol == 1 else (12, 12)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._channels: dict[int, _Channel] = {}

    def send(self, topic: str, partition: int, blob: Any) -> None:
        """Put one blob on its way. Waits while too much is in flight, or while the partition's first batch is."""
        lane = self._lanes.setdefault((topic, partition), _Lane(topic, partition))
        batch = self._seal(lane, memoryview(blob).cast("B"))
        while lane.in_flight and not lane.proved:
            self._collect(lane)
        if lane.failure is not None:
            self._mend(lane)
        lane.pending.append(batch)
        self._transmit(lane, batch)

    def flush(self) -> dict[tuple[str, int], Sent]:
        """Wait until everything is acknowledged, and say what each partition got since the sender was made."""
        for lane in self._lanes.values():
            self._drain(lane)
            if lane.failure is not None:
                self._mend(lane)
        return {partition: lane.sent for partition, lane in self._lanes.items()}

    def close(self) -> None:
        """Give the connections back. What is still in flight is given up."""
        for channel in self._channels.values():
            self._cluster.release(channel.wire)
        self._channels.clear()

    def _seal(self, lane: _Lane, blob: memoryview) -> _Batch:
        """Fill in what only the sender knows. The records themselves are not copied."""
        if len(blob) < HEADER_BYTES or blob[16] != 2 or struct.unpack_from(">i", blob, 8)[0] != len(blob) - 12:
            raise InvariantError(f"{lane}: {len(blob)} bytes that are not one whole record batch; nothing was sent")
        head, body = bytearray(blob[:HEADER_BYTES]), blob[HEADER_BYTES:]
        (count,) = struct.unpack_from(">i", head, 57)
        if self._producer_id >= 0:
            if self._transactional_id is not None:
                head[22] |= TRANSACTIONAL
            struct.pack_into(">qhi", head, 43, self._producer_id, self._epoch, lane.sequence)
            lane.sequence = (lane.sequence + count) % MAX_SEQUENCE
        struct.pack_into(">I", head, 17, crc32c.crc32c(body, crc32c.crc32c(head[21:])))
        return _Batch(head, body, count)

    def _transmit(self, lane: _Lane, batch: _Batch) -> None:
        self._check_leash()
        try:
            # While something of this partition is in flight, more goes the same way: order would be lost elsewhere.
            if lane.channel is None or not lane.in_flight:
                lane.channel = self._channel(self._cluster.leader(lane.topic, lane.partition))
            channel = lane.channel
            while channel.wire.outstanding >= self._max_in_flight:
                self._collect_from(channel)
            if channel.lost is not None:
                raise channel.lost
            if lane.failure is not None:
                return  # an earlier batch of this partition must go again first; this one waits behind it
            self._put(channel, lane, batch)
        except (TryAgain, ConnectionLost) as error:
            self._cluster.forget_topic(lane.topic)
            lane.failure = error
            return
        if self._acks == 0:
            self._acknowledge(lane, batch, -1)
        else:
            channel.waiting.append((lane, batch))
            lane.in_flight += 1

    def _put(self, channel: _Channel, lane: _Lane, batch: _Batch) -> None:
        while (throttled_s := channel.wire.throttled_s) > 0:
            self._check_leash()
            time.sleep(min(throttled_s, LEASH_CHECK_S))
        kind = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topic_data=[
                kind(name=lane.topic, partition_data=[kind.PartitionProduceData(index=lane.partition, records=b"")])
            ],
            min_version=self._versions[0] if self._transactional_id is not None else 3,
            max_version=self._versions[1] if self._transactional_id is not None else 12,  # from 13 on topics go by id
        )
        try:
            channel.wire.send(request, _records_instead(channel.wire.prepare(request).API_VERSION, batch))
        except ConnectionLost as error:
            self._lose(channel, error)
            raise

    def _lose(self, channel: _Channel, error: ConnectionLost) -> None:
        """Whatever was in flight here is uncertain now."""
        channel.lost = error
        for lane, _ in channel.waiting:
            self._cluster.forget_topic(lane.topic)
            lane.failure, lane.in_flight = error, 0
        channel.waiting.clear()

    def _channel(self, node: int) -> _Channel:
        known = self._channels.get(node)
        if known is None or known.lost is not None:
            known = self._channels[node] = _Channel(self._cluster.wire(node))
        return known

    def _drain(self, lane: _Lane) -> None:
        while lane.in_flight:
            self._collect(lane)

    def _collect(self, lane: _Lane) -> None:
        if lane.channel is None:
            raise InvariantError(f"{lane}: a batch is in flight, but on no connection")
        self._collect_from(lane.channel)

    def _collect_from(self, channel: _Channel) -> None:
        """Take one answer and note what it means for its lane."""
        self._check_leash()
        try:
            answer = channel.wire.receive(self._timeout_ms + ANSWER_GRACE_MS)
        except ConnectionLost as error:
            self._lose(channel, error)
            return
        lane, batch = channel.waiting.popleft()
        lane.in_flight -= 1
        found = _answered(answer, lane)
        if found is None:
            lane.failure = left_out(f"producing to {lane}")  # as when the answer is lost: it goes again
        elif found.error_code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(lane, batch, int(found.base_offset) if found.error_code == Code.NONE else -1)
        elif found.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.failure is not None:
            pass  # it follows from the failure before it; it is sent again behind that one
        else:
            lane.failure = self._failure(lane, batch, found)

    def _acknowledge(self, lane: _Lane, batch: _Batch, offset: int) -> None:
        lane.pending.remove(batch)
        lane.proved = True
        lane.sent = replace(
            lane.sent,
            records=lane.sent.records + batch.count,
            batches=lane.sent.batches + 1,
            bytes=lane.sent.bytes + batch.size,
            first_offset=offset if lane.sent.first_offset < 0 else lane.sent.first_offset,
            last_offset=max(lane.sent.last_offset, offset + batch.count - 1) if offset >= 0 else lane.sent.last_offset,
        )

    def _failure(self, lane: _Lane, batch: _Batch, found: Any) -> TryAgain | ConnectionLost:
        """What passes is returned; what does not is raised."""
        code, what = found.error_code, f"producing to {lane}"
        if code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
            raise UndeliverableRow(
                f"{what}: a batch of {batch.count} records and {batch.size} bytes is larger than the topic allows. "
                "Next: raise max.message.bytes of the topic, or lower max.request.size of the sink."
            )
        if code == Code.INVALID_TIMESTAMP:
            raise UndeliverableRow(
                f"{what}: a timestamp in a batch of {batch.count} records is further from the broker's now than the "
                "topic allows. Next: set message.timestamp.before.max.ms or message.timestamp.after.max.ms there."
            )
        if code in LEADER_MOVED:
            self._cluster.forget_topic(lane.topic)
            return TryAgain(f"{what}: {code_name(code)}")
        if code in SEQUENCE_LOST and self._transactional_id is not None:
            raise MustAbort(f"{what}: {code_name(code)}; the batch runs again with the sequences of a new epoch")
        error = error_for(code, f"{what} ({found.error_message})" if found.error_message else what)
        if isinstance(error, TryAgain):
            return error
        raise error

    def _mend(self, lane: _Lane) -> None:
        """Send again what is pending: alone, oldest first, with the sequences it had, within the delivery time."""
        self._drain(lane)
        if not self._retries:
            lost = sum(batch.count for batch in lane.pending)
            lane.sent = replace(lane.sent, failed_records=lane.sent.failed_records + lost)
            lane.pending.clear()
            lane.failure = None
            return
        backoff = Backoff(FIRST_PAUSE_MS / 1000, LONGEST_PAUSE_MS / 1000, self._delivery_timeout_ms / 1000, growth=1.6)
        while lane.pending:
            failure, lane.failure = lane.failure, None
            if failure is not None:
                if backoff.over:
                    raise failure
                backoff.wait()
            self._transmit(lane, lane.pending[0])
            self._drain(lane)
        lane.failure = None

    def _check_leash(self) -> None:
        if self._should_stop is not None and self._should_stop():
            raise AttemptAborted("the driver withdrew the right to write (its connection ended); nothing more is sent")


def idempotent_producer(cluster: Cluster) -> tuple[int, int]:
    """A fresh producer id and epoch without a transactional id."""

    def ask() -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1, max_version=5
        )
        answer = cluster.call(request)
        raise_for(answer.error_code, "asking for a producer id")
        if answer.producer_id < 0:
            raise left_out("asking for a producer id")
        return int(answer.producer_id), int(answer.producer_epoch)

    return retry(ask, limit_ms=DEFAULT_TIMEOUT_MS)


def _answered(answer: Any, lane: _Lane) -> Any | None:
    for topic in answer.responses or ():
        for entry in topic.partition_responses or ():
            if entry.index == lane.partition:
                return entry
    return None


def _records_instead(version: int, batch: _Batch) -> tuple[int, list[Any]]:
    """The request was encoded with empty records at its end: four bytes, replaced by length, batch and what follows."""
    if version < FLEXIBLE_FROM:
        return 4, [struct.pack(">i", batch.size), batch.head, batch.body]
    length, value = bytearray(), batch.size + 1
    while value > 127:
        length.append(value & 127 | 128)
        value >>= 7
    length.append(value)
    return 4, [length, batch.head, batch.body, b"\0\0\0"]
