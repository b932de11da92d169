"""`spark.readStream.format("atonce")` and `spark.read.format("atonce")`: Kafka as a Spark source, without a jar.

Where things run: `initialOffset`, `latestOffset`, `partitions` and `commit` in one planning process per query, `read`
in Spark's Python workers. A partition's whole range is fetched from its leader and handed over as Arrow columns.
A function given as `atonce.function` runs right behind the decoder, so that its input never visits the JVM.
"""

from __future__ import annotations

import base64
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from atonce.client.cluster import Cluster, shared
from atonce.client.offsets import TopicPartition
from atonce.client.read.ranges import Account, Wanted
from atonce.connectors.kafka.read.accounts import epochs_here, reported_at_the_end, tell_aside, with_epochs
from atonce.connectors.kafka.read.admission import Admission
from atonce.connectors.kafka.read.offsets import first_offsets, ids_of, last_offsets, selected
from atonce.connectors.kafka.read.options import SourceOptions, parse
from atonce.connectors.kafka.read.plan import Offsets, from_json_form, ids_in, to_json_form
from atonce.connectors.kafka.read.ranges import Range, cut, packed, ranges
from atonce.connectors.kafka.read.watch import Watch
from atonce.delivery.abilities import ArrowFunction
from atonce.delivery.progress import SMALL_BATCH_ROWS
from atonce.spark.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    StructType,
    SupportsTriggerAvailableNow,
    cloudpickle,
    limited,
    told_in_one_sentence,
)
from atonce.spark.steps.aside import telling
from atonce.spark.versions import parsed_schema, register_source

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


def source_schema(headers: bool) -> StructType:
    return parsed_schema(SCHEMA + (HEADERS if headers else ""))


def fused(function: ArrowFunction, schema: str) -> dict[str, str]:
    """Options that let `function` run inside the source's tasks; `schema` (DDL) is what it gives."""
    return {"atonce.function": base64.b64encode(cloudpickle.dumps(function)).decode(), "atonce.schema": schema}


_registering = threading.Lock()
_registered: weakref.WeakSet[Any] = weakref.WeakSet()


def register(spark: Any) -> None:
    """Make `format("atonce")` known to this session; returns when it is, whoever began."""
    with _registering:
        if spark not in _registered:
            register_source(spark, AtOnceSource)
            _registered.add(spark)


class AtOnceSource(DataSource):
    """The entry point that Spark knows."""

    @classmethod
    def name(cls) -> str:
        return "atonce"

    def schema(self) -> str:
        # Whether this is a batch or a stream is not known yet: what only one of them allows is checked later.
        either = {k: v for k, v in self.options.items() if not k.lower().startswith("ending")}
        with told_in_one_sentence():
            options = parse(either, streaming=True)
        if options.schema is not None:
            return options.schema
        return SCHEMA + (HEADERS if options.headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        with told_in_one_sentence():
            return BatchReader(parse(dict(self.options), streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with told_in_one_sentence():
            reader = StreamReader(parse(dict(self.options), streaming=True), schema)
            return limited(reader, self.options)


class RangesPartition(InputPartition):
    """One task: ranges, each of one partition, read one after the other. With the id of their topic, if it is known."""

    def __init__(self, *parts: Range, ids: Mapping[str, str] | None = None) -> None:
        known = ids or {}
        super().__init__(
            tuple(
                Wanted(part.tp.topic, part.tp.partition, part.start, part.end, known.get(part.tp.topic))
                for part in parts
            )
        )


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    @told_in_one_sentence()
    def partitions(self) -> list[InputPartition]:
        with Cluster(self._options.servers, self._options.config) as cluster:
            ids = ids_of(selected(cluster, self._options))
            start, end = first_offsets(cluster, self._options), last_offsets(cluster, self._options)
        return _tasks(start, end, self._options, ids) or [RangesPartition()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._target: dict[TopicPartition, int] | None = None
        self._admission = Admission(options)
        self._watch = Watch(options)

    def _cluster(self) -> Cluster:
        return shared(self._options.servers, self._options.config)

    @told_in_one_sentence()
    def initialOffset(self) -> Offsets:
        options = self._options
        first = first_offsets(self._cluster(), options) if options.first is None else options.first
        return to_json_form(first, options.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadMaxBytes(options.max_bytes) if options.max_bytes is not None else ReadAllAvailable()

    @told_in_one_sentence()
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        begin, ids, cluster = from_json_form(start), ids_in(start), self._cluster()
        if self._target is None:
            latest = self._watch.latest(cluster, begin, ids)
        else:
            latest = self._target
            self._watch.look(cluster, begin, ids)
        end = self._within(begin, self._watch.ends(cluster, begin, latest, ids))
        if not isinstance(limit, ReadAllAvailable):
            end = self._admission.admit(cluster, begin, end, draining=self._target is not None)
        return to_json_form(end, None if self._options.topic_ids is None else self._watch.ids)

    def _within(self, begin: Mapping[TopicPartition, int], end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        until = self._options.until
        if until is None:
            return end
        return {p: max(begin.get(p, 0), min(at, until.get(p, 0))) for p, at in end.items() if p in begin or p in until}

    def reportLatestOffset(self) -> Offsets | None:
        # For the progress report, of the same moment as the plan: asking again would cost every trigger a round trip.
        return to_json_form(self._watch.last) if self._watch.last else None

    @told_in_one_sentence()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._watch.latest(self._cluster(), {})

    @told_in_one_sentence()
    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        ids = {**self._watch.ids, **ids_in(end)}
        return _tasks(from_json_form(start), from_json_form(end), self._options, ids)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)


def _tasks(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    options: SourceOptions,
    ids: Mapping[str, str],
) -> list[InputPartition]:
    wanted = ranges(start, end)
    # A function inside the source may count on one task for a small batch; otherwise `minPartitions` is obeyed.
    may_be_one = options.function is not None or options.min_partitions is None
    if wanted and may_be_one and sum(part.size for part in wanted) <= SMALL_BATCH_ROWS:
        return [RangesPartition(*wanted, ids=ids)]
    parts = cut(wanted, at_least=options.min_partitions, max_records=options.max_records)
    if options.min_partitions is not None or options.max_records is not None:
        return [RangesPartition(part, ids=ids) for part in parts]
    return [RangesPartition(*task, ids=ids) for task in packed(parts)]


def read_ranges(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    """Runs in a task: its ranges as Arrow batches, through the function if there is one."""
    # Here and not above: planning processes never decode, and start a second sooner without the compiled codec.
    from atonce.client.read.fetch import fetch_all
    from atonce.spark.arrow_transform import as_declared
    from atonce.spark.versions import arrow_schema

    accounts: list[Account] = []
    batches = fetch_all(
        shared(options.servers, options.config),
        with_epochs(partition.value, epochs_here()),
        isolation=options.isolation,
        headers=options.headers,
        max_bytes=options.fetch_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        only_this_topic=options.topic_ids is not None,  # the ledger's positions belong to that very topic
        report=accounts.append,
    )
    if options.accounts is not None:
        batches = reported_at_the_end(batches, accounts, options.accounts, options.accounts_secret)
    if options.function is None:
        return batches
    function = cloudpickle.loads(base64.b64decode(options.function))
    wanted = arrow_schema(schema)
    given = (as_declared(batch, wanted) for batch in function(batches))
    return _told_of(given, options)


def _told_of(batches: Iterator[Any], options: SourceOptions) -> Iterator[Any]:
    """Steps among the functions may meet records that they cannot read: the driver hears of them."""
    to = options.accounts
    # Without a delivery (a few records are looked at again, to find one) nobody keeps them.
    with telling(partial(tell_aside, to, options.accounts_secret) if to is not None else lambda _records: None):
        yield from batches
