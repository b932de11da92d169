"""Fetch: key 1, versions 4-18.

Answers byte ranges of the log, as stored. Waits up to max_wait for min_bytes, and is woken by appends, not by a clock.
`read_committed` ends at the last stable offset and lists the aborted transactions of the range. Sessions (version 7
on): see `broker/sessions.py`. Topic ids from version 13 on. A reader that names the leader epoch of its last record
(version 12 on) is told where that epoch ends if the log is not the one that it read (KIP-595).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from atonce.broker import sending
from atonce.broker.access.guard import split
from atonce.broker.access.topics import is_forbidden
from atonce.broker.acls import Operation
from atonce.broker.context import Context
from atonce.broker.fetch_wire import PartitionData, write_fetch
from atonce.broker.messages import ErrorCode, milliseconds
from atonce.broker.pace import paced
from atonce.broker.partition import Partition
from atonce.broker.sending import SMALL_BYTES, Part
from atonce.broker.sessions import FetchSessions, Opened, Wanted
from atonce.log.errors import LogError, OffsetOutOfRange
from atonce.log.results import EpochEnd, Isolation, ReadResult

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

API_KEY = 1
MIN_VERSION = 4
MAX_VERSION = 18

_ZERO_ID = UUID(int=0)
# While readers wait for room, each of them gets this much at a time.
_BYTES_IN_A_CROWD = 1024 * 1024


@dataclass(slots=True)
class Read:
    """One partition's part of the answer, before its bytes are read."""

    wanted: Wanted
    error: ErrorCode
    result: ReadResult | None = None
    partition: Partition | None = None
    diverging: EpochEnd | None = None

    @property
    def size(self) -> int:
        return self.result.size if self.result is not None else 0


async def handle(broker: BrokerState, context: Context, request: Any) -> Any:
    wanted, forgotten = _partitions(request)
    if context.version >= 7:
        opened = broker.sessions.open(
            request.session_id, request.session_epoch, wanted, forgotten, context.connection_id
        )
    else:
        opened = Opened(ErrorCode.none, wanted)
    if opened.error is not ErrorCode.none:
        return write_fetch(context.version, opened.error, 0, [])
    limit = min(max(0, request.max_bytes), broker.settings.number("fetch.max.bytes"))
    if broker.response_room.is_tight:
        limit = min(limit, _BYTES_IN_A_CROWD)
    isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    allowed: list[Wanted] = opened.wanted
    forbidden: list[Wanted] = []
    if context.peer.acls is not None:
        allowed, forbidden = split(
            opened.wanted, lambda one: not is_forbidden(broker, context, Operation.READ, one.topic)
        )
    reads = await _read(broker, allowed, limit, isolation)
    wait_ms = milliseconds(request.max_wait)
    if wait_ms > 0 and (allowed or not forbidden) and _is_short(reads, request.min_bytes):
        reads = await _wait(broker, allowed, reads, limit, isolation, request.min_bytes, wait_ms / 1000)
    reads += [Read(one, ErrorCode.topic_authorization_failed) for one in forbidden]
    return await _answer(context, opened, reads)


def _partitions(request: Any) -> tuple[list[Wanted], list[tuple[str | UUID, int]]]:
    def key(topic: Any) -> str | UUID:
        return (topic.topic_id or _ZERO_ID) if topic.topic is None else str(topic.topic)

    wanted = [
        Wanted(
            key(topic),
            one.partition,
            one.fetch_offset,
            one.partition_max_bytes,
            one.current_leader_epoch,
            one.last_fetched_epoch,
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    forgotten = [(key(topic), index) for topic in request.forgotten_topics_data for index in topic.partitions]
    return wanted, forgotten


async def _read(broker: BrokerState, wanted: list[Wanted], limit: int, isolation: Isolation) -> list[Read]:
    """Where the bytes are; they are not read yet. The first partition with data gives at least one whole batch."""
    left = limit
    reads = []
    async for one in paced(wanted):
        read = _read_one(broker, one, left, isolation, min_one=left == limit)
        left = max(0, left - read.size)
        reads.append(read)
    return reads


def _read_one(broker: BrokerState, one: Wanted, left: int, isolation: Isolation, *, min_one: bool) -> Read:
    by_id = isinstance(one.topic, UUID)
    topic = broker.topics.by_id(one.topic) if isinstance(one.topic, UUID) else broker.topics.get(one.topic)
    if topic is None:
        return Read(one, ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition)
    if not 0 <= one.partition < len(topic.partitions):
        return Read(one, ErrorCode.unknown_topic_or_partition)
    partition = topic.partitions[one.partition]
    if one.leader_epoch >= 0 and one.leader_epoch != partition.leader_epoch:
        fenced = one.leader_epoch < partition.leader_epoch
        return Read(one, ErrorCode.fenced_leader_epoch if fenced else ErrorCode.unknown_leader_epoch)
    try:
        if one.last_fetched_epoch >= 0 and (end := _diverged(partition, one)) is not None:
            result = partition.log.read(partition.log.log_start_offset, 0, isolation=isolation, min_one_batch=False)
            return Read(one, ErrorCode.none, result, partition, end)
        # A partition that gets no room still says where its log stands.
        size = min(one.max_bytes, left)
        result = partition.log.read(one.fetch_offset, max(0, size), isolation=isolation, min_one_batch=min_one)
    except LogError as error:
        return Read(one, ErrorCode(error.code), partition=partition)
    return Read(one, ErrorCode.none, result, partition)


def _diverged(partition: Partition, one: Wanted) -> EpochEnd | None:
    """Where the reader's last epoch ends here, if that is before what it has read; None if its log is this log."""
    log, asked = partition.log, one.last_fetched_epoch
    end = EpochEnd(asked, log.log_end_offset) if asked == partition.leader_epoch else log.epoch_end_offset(asked)
    if end.end_offset < 0 or end.leader_epoch < 0:
        raise OffsetOutOfRange(f"{log.directory}: leader epoch {asked} is not known, so its end is not, either")
    if one.fetch_offset < log.log_start_offset:
        return None  # out of range, whatever its epoch
    return end if end.leader_epoch < asked or end.end_offset < one.fetch_offset else None


def _is_short(reads: list[Read], min_bytes: int) -> bool:
    """Whether to wait: nothing is wrong, and there is less than was asked for."""
    news = any(read.error or read.diverging for read in reads)
    return sum(read.size for read in reads) < min_bytes and not news


async def _wait(
    broker: BrokerState,
    wanted: list[Wanted],
    reads: list[Read],
    limit: int,
    isolation: Isolation,
    min_bytes: int,
    wait_s: float,
) -> list[Read]:
    """Until enough has come, or the time is up. Only partitions that moved are looked at again."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    moved: set[int] = set()

    def watcher(position: int) -> Callable[[], None]:
        def wake() -> None:
            moved.add(position)
            woken.set()

        return wake

    watched = [(read.partition, watcher(i)) for i, read in enumerate(reads) if read.partition is not None]
    for partition, wake in watched:
        partition.watch(wake)
    for read, (_, wake) in zip([read for read in reads if read.partition is not None], watched, strict=True):
        if _has_moved(read):  # others had their turns while so many partitions were looked at
            wake()
    over = False

    def time_is_up() -> None:
        nonlocal over
        over = True
        woken.set()

    # The timer itself says so, and not a look at the clock: a timer may ring a little early, and it rings once.
    timer = loop.call_later(wait_s, time_is_up)
    try:
        while not broker.stopping:
            await woken.wait()
            woken.clear()
            for position in moved:
                reads[position] = _read_one(broker, wanted[position], limit, isolation, min_one=True)
            moved.clear()
            if over or not _is_short(reads, min_bytes):
                break
    finally:
        timer.cancel()
        for partition, wake in watched:
            partition.unwatch(wake)
    return await _read(broker, wanted, limit, isolation)


def _has_moved(read: Read) -> bool:
    if read.partition is None or read.result is None:
        return False
    log, seen = read.partition.log, read.result
    return log.high_watermark != seen.high_watermark or log.last_stable_offset != seen.last_stable_offset


async def _answer(context: Context, opened: Opened, reads: list[Read]) -> Any:
    topics: dict[str | UUID, list[PartitionData]] = {}
    served = []
    is_small = sum(read.size for read in reads) <= SMALL_BYTES
    async for read in paced(reads):
        told = _told(read)
        if opened.incremental and not (read.size or read.error or read.diverging) and read.wanted.told == told:
            continue
        # An error is told again until it is gone: the client may have missed it.
        read.wanted.told = told if read.error is ErrorCode.none else None
        topics.setdefault(read.wanted.topic, []).append(_data(read, is_small))
        if read.size:
            served.append(read.wanted.key)
    if opened.session is not None and served:
        FetchSessions.rotate(opened.session, served)
    return write_fetch(context.version, ErrorCode.none, opened.session_id, list(topics.items()))


def _told(read: Read) -> tuple[int, ...]:
    if read.result is None:
        return ()
    return (read.result.high_watermark, read.result.last_stable_offset, read.result.log_start_offset)


def _data(read: Read, is_small: bool) -> PartitionData:
    """What is small is read now; for anything else its connection first needs room."""
    result = read.result
    if result is None:
        return PartitionData(read.wanted.partition, read.error)
    records: Sequence[Part] = result.slices
    if is_small:
        try:
            records = sending.read(result.slices)
        except OSError:
            return PartitionData(read.wanted.partition, ErrorCode.kafka_storage_error)
    return PartitionData(
        read.wanted.partition,
        read.error,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.aborted,
        records,
        read.diverging,
    )
