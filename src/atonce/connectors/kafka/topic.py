"""`atonce.Kafka`: what a user writes down about topics, as a source or as a sink. No connection is made here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.connectors.contract import Ground, InputRecord, Topic
    from atonce.delivery.contract import Sink, Source
    from atonce.plugins import Use

_SECRET = re.compile(r"password|secret|token|jaas|\bkey\b", re.IGNORECASE)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

PARTITIONERS = ("murmur2", "crc32")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ON_ERROR = ("stop", "dead-letter")

# Of the fields of `Kafka`, these mean something in one use only; the rest do in both.
SOURCE_ONLY = ("pattern", "assign", "start", "headers", "isolation", "fail_on_data_loss", "options")
SINK_ONLY = (
    "partitioner",
    "compression",
    "acks",
    "create",
    "partitions",
    "on_error",
    "dead_letter",
    "progress_topic",
    "transaction_timeout_ms",
    "unverified_transactions",
    "auto_commit_interval_ms",
)

CONNECTOR_OPTIONS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerTrigger",
)

Start = str | Mapping[str, Any]
"""earliest, latest, or {topic: {partition: offset}}; {"timestamp": milliseconds} starts by time."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """Topics of one cluster. As a source: `topic`, `pattern` or `assign`. As a sink: `topic`, or a `topic` column.

    Rows for a sink have the column `value`, and may have `key`, `headers`, `partition` and `timestamp`: the record's
    own time, by which Kafka also keeps and removes it; null: the time of sending.
    """

    topic: str | None = None
    """One topic, or several separated by commas (source)."""
    servers: str | None = field(default=None, kw_only=True)
    """Bootstrap servers, HOST:PORT[,…]. None: the embedded broker of this project."""
    config: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Client settings by Kafka's own names: security.protocol, sasl.mechanism, ssl.ca.location …"""

    # As a source
    pattern: str | None = field(default=None, kw_only=True)
    """A regular expression over topic names; topics that appear later are read too."""
    assign: Mapping[str, tuple[int, ...]] | None = field(default=None, kw_only=True)
    """Exact partitions: {"orders": [0, 1]}."""
    start: Start = field(default="earliest", kw_only=True)
    """Where a new pipeline begins: earliest, latest, {"orders": {0: 17}} by offset, or {"timestamp": 1700000000000} by
    time in milliseconds. Afterwards its ledger decides."""
    headers: bool = field(default=False, kw_only=True)
    """Add the column `headers`."""
    isolation: str = field(default="read_committed", kw_only=True)
    """read_committed, or read_uncommitted: aborted and open transactions too."""
    fail_on_data_loss: bool = field(default=True, kw_only=True)
    """Stop when input was removed before it was read; False: go on, and say what is missing."""
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Further options of the source by the names of Spark's connector: maxOffsetsPerTrigger, minPartitions …"""

    # As a sink
    partitioner: str = field(default="murmur2", kw_only=True)
    """murmur2, as Java producers, or crc32, as librdkafka. A column `partition` goes first."""
    compression: str = field(default="none", kw_only=True)
    """none, gzip, snappy, lz4 or zstd."""
    acks: str = field(default="all", kw_only=True)
    """all, 1 or 0. at-most-once never waits; at-least-once and effectively-once always wait for all."""
    create: bool = field(default=True, kw_only=True)
    """Create a missing output topic, and say so."""
    partitions: int | None = field(default=None, kw_only=True)
    """Partitions of a topic that is created; None: as many as the input has, 4 when it has none. Partitions that are
    added later are used within half a minute."""
    on_error: str = field(default="stop", kw_only=True)
    """A row that cannot be delivered: stop and name it, or dead-letter."""
    dead_letter: str | None = field(default=None, kw_only=True)
    """Topic for such rows; written in the same transaction as the rest of the batch."""
    progress_topic: str | None = field(default=None, kw_only=True)
    """Where progress stands when rows choose their topic by column and the input is not on this cluster."""
    transaction_timeout_ms: int = field(default=60_000, kw_only=True)
    """How long one batch may take; not above the broker's transaction.max.timeout.ms."""
    unverified_transactions: str = field(default="refuse", kw_only=True)
    """refuse or allow: brokers below transaction version 2 that do not verify what they take into a transaction (older
    than Kafka 3.6.1, or with transaction.partition.verification.enable=false)."""
    auto_commit_interval_ms: int = field(default=5_000, kw_only=True)
    """How often progress is recorded under level none, as `auto.commit.interval.ms` of a consumer."""

    def into(self, name: str) -> Kafka:
        return replace(self, topic=name)

    def __post_init__(self) -> None:
        if isinstance(self.assign, Mapping):
            object.__setattr__(self, "assign", {t: tuple(int(p) for p in ps) for t, ps in self.assign.items()})
        named = [w for w, v in (("topic", self.topic), ("pattern", self.pattern), ("assign", self.assign)) if v]
        if len(named) > 1:
            raise UsageError(f"Kafka takes one of topic, pattern and assign, got {' and '.join(named)}")
        for name in self.topic_names():
            if not _TOPIC.fullmatch(name) or name in (".", ".."):
                raise UsageError(
                    f"{name!r} is not a topic name: 1 to 249 letters, digits, '.', '_' and '-' are allowed"
                )
        _one_of("partitioner", self.partitioner, PARTITIONERS)
        _one_of("compression", self.compression, COMPRESSIONS)
        _one_of("acks", str(self.acks), ("all", "-1", "1", "0"))
        _one_of("on_error", self.on_error, ON_ERROR)
        _one_of("unverified_transactions", self.unverified_transactions, ("refuse", "allow"))
        _one_of("isolation", self.isolation, ("read_committed", "read_uncommitted"))
        for name in ("transaction_timeout_ms", "auto_commit_interval_ms"):
            value = getattr(self, name)
            if not isinstance(value, int) or value <= 0:
                raise UsageError(f"{name} {value!r} is not a number of milliseconds above 0")
        if isinstance(self.start, str):
            _one_of("start", self.start, ("earliest", "latest"))
        if self.on_error == "dead-letter" and not self.dead_letter:
            raise UsageError("on_error: dead-letter needs dead_letter, the topic that such rows go to")

    def topic_names(self) -> list[str]:
        if self.assign:
            return sorted(self.assign)
        return [name.strip() for name in (self.topic or "").split(",") if name.strip()]

    def at(self, servers: str) -> Kafka:
        """The same topics on a cluster that is now known."""
        return self if self.servers else replace(self, servers=servers)

    def anywhere(self) -> Kafka:
        """The same topics, wherever they are: the embedded broker has another port in every run."""
        return replace(self, servers=None)

    def local(self, say: Callable[[str], None]) -> AbstractContextManager[str]:
        """The embedded broker of this project: the one that runs, or one for this run."""
        from atonce.connectors.kafka.local_broker import local_broker

        return local_broker(say)

    def as_source(self) -> Source:
        from atonce.connectors.kafka.source import KafkaSource

        return KafkaSource(self)

    def as_sink(self) -> Sink:
        from atonce.connectors.kafka.sink import KafkaSink

        return KafkaSink(self)

    @classmethod
    def keys_elsewhere(cls, use: Use) -> tuple[str, ...]:
        return SINK_ONLY if use == "source" else SOURCE_ONLY

    @classmethod
    def home_of(cls, key: str, use: Use) -> tuple[str, str] | None:
        """Client settings by Kafka's names, and the source's options by those of Spark's connector."""
        if use == "source" and key in CONNECTOR_OPTIONS:
            return "options", key
        return ("config", key.removeprefix("kafka.")) if "." in key else None

    def where(self) -> str:
        what = self.topic or (f"topics matching {self.pattern}" if self.pattern else "")
        if self.assign:
            what = ", ".join(f"{t}[{','.join(map(str, ps))}]" for t, ps in sorted(self.assign.items()))
        return f"kafka {what or 'topics by column'} on {self.servers or 'the embedded broker'}"

    # Under `atonce verify`

    def scratch_source(self, ground: Ground) -> Kafka:
        from atonce.connectors.kafka.verified import reading_scratch

        return reading_scratch(self, ground)

    def feed(self, ground: Ground) -> Topic:
        from atonce.connectors.kafka.verified import read_topics

        return read_topics(self, ground)

    def static(self, spark: Any, schema: Any, records: Sequence[InputRecord]) -> Any:
        from atonce.connectors.kafka.verified import known
        from atonce.spark.static_rows import static_rows

        return static_rows(spark, schema, known(self, records))

    def real_input(self) -> Topic | None:
        from atonce.connectors.contract import Topic

        return Topic(self.topic, self.servers) if self.topic else None

    def scratch_sink(self, ground: Ground) -> Kafka:
        from atonce.connectors.kafka.verified import writing_scratch

        return writing_scratch(self, ground)

    def read_back(self, ground: Ground) -> Topic:
        from atonce.connectors.kafka.verified import written_topic

        return written_topic(self, ground)

    def __repr__(self) -> str:
        return f"Kafka({self.where()}, config={redacted(self.config)})"


def redacted(config: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown: values that look like secrets are masked."""
    return {key: "***" if _SECRET.search(key) else value for key, value in config.items()}


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} {value!r} is not one of: {', '.join(allowed)}")
