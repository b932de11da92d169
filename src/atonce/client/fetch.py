"""Reading a range of one partition as Arrow record batches.

The next fetch is on its way before the current one is decoded, so that network, broker and decoder work at once.
Gaps between offsets are normal (compaction, control records, aborted transactions); a range that retention has
removed is not, and raises `DataLossError`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from kafka.protocol.consumer import FetchRequest

from atonce.client.cluster import Cluster
from atonce.client.errors import LEADER_MOVED, Code, ConnectionLost, TryAgain, error_for
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, isolation_level, list_offsets
from atonce.client.ranges import Account, Wanted, as_wanted
from atonce.client.retry import retry
from atonce.client.wire import Wire
from atonce.errors import DataLossError
from atonce.records.columns import Located, decode, locate
from atonce.records.headers import HEADERS

log = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 4 << 20
MAX_WAIT_MS = 500
RESPONSE_TIMEOUT_MS = 30_000
NO_PROGRESS_MS = 60_000
EMPTY_FETCHES = 2
ASKED_AHEAD = 4
"""Ranges asked for at once, each over a connection of its own: a topic may have hundreds of partitions."""

FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*FIELDS, pa.field("headers", HEADERS)])


def fetch(cluster: Cluster, topic: str, partition: int, start: int, end: int, **options: Any) -> Iterator[Any]:
    """One range; the options are those of `fetch_all`."""
    return fetch_all(cluster, [(topic, partition, start, end)], **options)


def fetch_all(
    cluster: Cluster,
    ranges: Iterable[tuple[str, int, int, int] | Wanted],
    *,
    isolation: str = "read_committed",
    headers: bool = False,
    max_bytes: int = DEFAULT_MAX_BYTES,
    timeout_ms: int = NO_PROGRESS_MS,
    fail_on_data_loss: bool = True,
    told: Callable[[Account], None] | None = None,
) -> Iterator[Any]:
    """Every visible record of each (topic, partition, start, end), as `pa.RecordBatch`es (see SCHEMA).

    One range after the other, each in offset order, start <= offset < end; while one is read, the next few are asked
    for. `timeout_ms` bounds the time without any progress. With `fail_on_data_loss=False`, records that are gone are
    passed over with a warning that names them. `told` hears what became of the offsets of each finished range.
    """
    readers = [
        Reader(
            cluster,
            each.topic,
            each.partition,
            each.start,
            each.end,
            isolation,
            max_bytes,
            timeout_ms,
            fail_on_data_loss,
        )
        for each in as_wanted(ranges)
    ]
    try:
        for number, reader in enumerate(readers):
            for ahead in readers[number : number + ASKED_AHEAD]:
                ahead.begin()
            yield from _decoded(reader, headers)
            reader.close()
    finally:
        for reader in readers:
            reader.close()


def _decoded(reader: Reader, headers: bool) -> Iterator[Any]:
    topic, partition = reader.place.topic, reader.place.partition
    constants = _Constants(topic, partition)
    schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
    where = f"topic {topic!r} partition {partition}"
    for position, located, aborted in reader.responses():
        found = decode(located, start=position, end=reader.end, aborted=aborted, headers=headers, where=where)
        if found.rows:
            columns = {**found.columns, **constants.columns(found.rows)}
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


class Reader:
    """One range, undecoded: the position, the connection to the leader, and what to do when either is lost."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        start: int,
        end: int,
        isolation: str = "read_committed",
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout_ms: int = NO_PROGRESS_MS,
        fail_on_data_loss: bool = True,
    ) -> None:
        self._cluster, self.place, self._start, self.end = cluster, TopicPartition(topic, partition), start, end
        self._isolation, self._level = isolation, isolation_level(isolation)
        self._max_bytes, self._timeout_ms = max_bytes, timeout_ms
        self._fail_on_data_loss = fail_on_data_loss
        self._wire: Wire | None = None

    def begin(self) -> None:
        """Ask for the first answer, once. Whatever is in the way is dealt with when it is waited for."""
        if self._wire is None and self._start < self.end:
            try:
                self._ask_for(self._start)
            except (ConnectionLost, TryAgain):
                self._lose()

    def responses(self) -> Iterator[tuple[int, Located, list[tuple[int, int]]]]:
        """(position asked for, its batches, its aborted transactions). The next request is out when one is yielded."""
        position, empty, progress_at = self._start, 0, time.monotonic()
        while position < self.end:
            answer = retry(lambda: self._ask(position), limit_ms=self._timeout_ms)  # noqa: B023
            if answer.error_code == Code.OFFSET_OUT_OF_RANGE:
                position = self._after_loss(position)
                continue
            located = locate(answer.records or b"", f"topic {self.place.topic!r} partition {self.place.partition}")
            if located.next_offset <= position:
                # Nothing more below a bound that lies beyond our end: what is missing was compacted away.
                bound = answer.last_stable_offset if self._level else answer.high_watermark
                empty = empty + 1 if bound >= self.end else 0
                if empty >= EMPTY_FETCHES:
                    return
                if time.monotonic() - progress_at > self._timeout_ms / 1000:
                    raise TryAgain(
                        f"{self.place}: nothing to read at offset {position} for {self._timeout_ms} ms, although the "
                        f"batch ends at {self.end} (the broker's end is {bound}). Next: see whether the log was cut."
                    )
                continue
            asked, position, empty, progress_at = position, located.next_offset, 0, time.monotonic()
            if position < self.end and self._wire is not None:
                try:
                    self._send(self._wire, position)
                except ConnectionLost:
                    self._lose()  # the next round connects again
            aborted = [(int(a.producer_id), int(a.first_offset)) for a in answer.aborted_transactions or []]
            yield asked, located, aborted

    def _ask(self, position: int) -> Any:
        """One answer for `position`; asks only when no request is on its way."""
        try:
            answer = self._ask_for(position).receive(RESPONSE_TIMEOUT_MS)
        except ConnectionLost:
            self._lose()
            raise
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        if code and code != Code.OFFSET_OUT_OF_RANGE:
            error = error_for(code, f"fetching {self.place} at offset {position}")
            if code in LEADER_MOVED:
                self._lose()
                raise TryAgain(str(error))
            raise error
        return answer.responses[0].partitions[0]

    def _ask_for(self, position: int) -> Wire:
        """The connection on which the answer will come."""
        if self._wire is None:
            self._wire = self._cluster.wire(self._cluster.leader(self.place.topic, self.place.partition))
        if not self._wire.outstanding:
            self._send(self._wire, position)
        return self._wire

    def _send(self, wire: Wire, position: int) -> None:
        kind = FetchRequest.FetchTopic
        place = kind.FetchPartition(
            partition=self.place.partition,
            current_leader_epoch=-1,
            fetch_offset=position,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._level,
            session_id=0,
            session_epoch=-1,
            topics=[kind(topic=self.place.topic, partitions=[place])],
            forgotten_topics_data=[],
            rack_id="",
            min_version=4,
            max_version=12,  # from 13 on topics go by id
        )
        wire.send(request)

    def _lose(self) -> None:
        """The connection or the leader is gone: look for both anew."""
        self._cluster.forget_topic(self.place.topic)
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _after_loss(self, position: int) -> int:
        """Where reading can go on, after saying what is missing."""
        first = list_offsets(self._cluster, {self.place: EARLIEST})[self.place]
        last = list_offsets(self._cluster, {self.place: LATEST}, self._isolation)[self.place]
        gone = min(first, self.end) if first > position else self.end
        message = (
            f"{self.place}: offsets {position} to {gone - 1} are wanted, but only {first} to {last - 1} are "
            "there: they were removed (retention, deletion, or the topic was made again) before they were read."
        )
        if self._fail_on_data_loss:
            raise DataLossError(
                message + " Next: find out why, then go on with failOnDataLoss=false (in a pipeline "
                "fail_on_data_loss: false), or reset it."
            )
        log.warning("%s Going on without them, as failOnDataLoss=false says.", message)
        return gone

    def close(self) -> None:
        if self._wire is not None:
            self._cluster.release(self._wire)
            self._wire = None


class _Constants:
    """The columns that are the same in every row, made once and sliced."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition, self._rows = topic.encode(), partition, 0
        self._columns: dict[str, Any] = {}

    def columns(self, rows: int) -> dict[str, Any]:
        if rows > self._rows:
            self._rows = rows
            ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(self._topic))
            names = pa.py_buffer(self._topic * rows)
            self._columns = {
                "topic": pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), names], 0),
                "partition": pa.array(np.full(rows, self._partition, np.int32)),
            }
        return {name: column.slice(0, rows) for name, column in self._columns.items()}
