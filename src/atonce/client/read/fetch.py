"""Ranges of partitions as Arrow record batches, each offset accounted for.

Gaps between offsets are normal (compaction, control records, aborted transactions); a range that retention has
removed is not, and raises `DataLossError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from atonce.client.cluster import Cluster
from atonce.client.read.ranges import Account, Wanted, as_wanted
from atonce.client.read.reader import DEFAULT_MAX_BYTES, NO_PROGRESS_MS, Reader
from atonce.records.columns import decode
from atonce.records.headers import HEADERS
from atonce.records.tally import tally

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
    only_this_topic: bool = False,
    report: Callable[[Account], None] | None = None,
) -> Iterator[Any]:
    """Every visible record of each (topic, partition, start, end), as `pa.RecordBatch`es (see SCHEMA).

    One range after the other, each in offset order, start <= offset < end; while one is read, the next few are asked
    for. `timeout_ms` bounds the time without any progress. With `fail_on_data_loss=False`, records that are gone are
    passed over with a warning that names them, and a topic that was made again is read by its name, unless
    `only_this_topic`: then no record of another topic is ever given. `report` hears what became of the offsets of each
    finished range.
    """
    readers = [
        Reader(
            cluster,
            each,
            isolation=isolation,
            max_bytes=max_bytes,
            timeout_ms=timeout_ms,
            fail_on_data_loss=fail_on_data_loss,
            only_this_topic=only_this_topic,
        )
        for each in as_wanted(ranges)
    ]
    try:
        for number, reader in enumerate(readers):
            for ahead in readers[number : number + ASKED_AHEAD]:
                ahead.begin()
            yield from _decoded(reader, headers, report)
            reader.close()
    finally:
        for reader in readers:
            reader.close()


def _decoded(reader: Reader, headers: bool, report: Callable[[Account], None] | None) -> Iterator[Any]:
    wanted = reader.wanted
    constants = _Constants(wanted.topic, wanted.partition)
    schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
    where = f"topic {wanted.topic!r} partition {wanted.partition}"
    records = control = aborted = missing = 0
    epoch, reach, first_epoch, last_epoch = wanted.epoch, wanted.start, -1, -1
    for position, located, aborts in reader.responses():
        found = decode(located, start=position, end=wanted.end, aborted=aborts, headers=headers, where=where)
        counted = tally(located, found, start=position, end=wanted.end, where=where)
        records, control = records + counted.records, control + counted.control
        aborted, missing = aborted + counted.aborted, missing + counted.missing
        if counted.reach >= 0:
            epoch, reach, last_epoch = counted.epoch, counted.reach, counted.epoch
        if first_epoch < 0:
            first_epoch = counted.first_epoch
        if found.rows:
            columns = {**found.columns, **constants.columns(found.rows)}
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    # Made whether or not somebody asks: numbers that do not add up must not pass.
    account = Account(
        topic=wanted.topic,
        partition=wanted.partition,
        start=wanted.start,
        end=max(wanted.start, wanted.end),
        records=records,
        control=control,
        aborted=aborted,
        missing=missing + reader.missing,
        gone=reader.gone,
        epoch=reader.last_epoch(epoch, reach) if report is not None else -1,
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        reach=min(reach, wanted.end),
    )
    if report is not None:
        report(account)


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
