"""The broker as its handlers see it: settings, topics, coordinators, fetch sessions. It knows no sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from atonce.broker.acls import Acls, super_users
from atonce.broker.background import Background
from atonce.broker.config import BROKER_BY_NAME, INTERNAL_SEGMENT_BYTES
from atonce.broker.coordination import Coordination
from atonce.broker.journal import PartitionJournal
from atonce.broker.messages import ErrorCode
from atonce.broker.metrics import Metrics
from atonce.broker.partition import Partition
from atonce.broker.sasl import Sasl
from atonce.broker.sending import ResponseRoom
from atonce.broker.sessions import FetchSessions
from atonce.broker.settings import Settings
from atonce.broker.topics import INTERNAL, Topic, Topics
from atonce.broker.users import Users
from atonce.coordinator.decision import CONSUMER_OFFSETS, TRANSACTION_STATE, ProducerIdAndEpoch, TopicPartition
from atonce.coordinator.groups.groups import GroupConfig, GroupCoordinator
from atonce.coordinator.groups.states import TransactionState
from atonce.coordinator.transactions.transactions import TransactionConfig, TransactionCoordinator
from atonce.log.config import LogConfig
from atonce.log.descriptors import Descriptors
from atonce.log.errors import LogError
from atonce.log.partition_log import PartitionLog
from atonce.log.storage import DiskStorage

C = TypeVar("C")

# The internal topics, and the setting for the size of their segments.
_JOURNALS = {
    CONSUMER_OFFSETS: "offsets.topic.segment.bytes",
    TRANSACTION_STATE: "transaction.state.log.segment.bytes",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def log_config(settings: Settings, topic: str, overrides: Mapping[str, str]) -> LogConfig:
    """A topic's settings as its logs take them.

    However lazy the user makes the topics, a coordinator's decision is on disk before it is answered.
    """

    def number(name: str) -> int:
        return settings.topic_number(name, overrides)

    ratio = settings.topic_value("min.cleanable.dirty.ratio", overrides)
    config = LogConfig(
        segment_bytes=number(INTERNAL_SEGMENT_BYTES) or number("segment.bytes"),
        segment_ms=number("segment.ms"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        cleanup_policy=frozenset(str(settings.topic_value("cleanup.policy", overrides)).split(",")),
        max_message_bytes=number("max.message.bytes"),
        compression_type=str(settings.topic_value("compression.type", overrides)),
        message_timestamp_type=str(settings.topic_value("message.timestamp.type", overrides)),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        min_cleanable_dirty_ratio=float(ratio) if isinstance(ratio, int | float) else 0.5,
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        delete_retention_ms=number("delete.retention.ms"),
        producer_id_expiration_ms=settings.number("producer.id.expiration.ms"),
    )
    if topic in INTERNAL:
        return dataclasses.replace(config, flush_messages=1, compression_type="producer")
    return config


def from_settings(kind: type[C], settings: Settings) -> C:
    """A coordinator's configuration: its fields are Kafka's names with the dots replaced."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        name = field.name.replace("_", ".")
        if name in BROKER_BY_NAME:
            value = settings.value(name)
            values[field.name] = tuple(str(value).split(",")) if name == "group.consumer.assignors" else value
    return kind(**values)


class BrokerState:
    """Everything that a request can ask about or change."""

    def __init__(self, root: Path, settings: Settings, metrics: Metrics, open_files: int = 1024) -> None:
        """`open_files`: how many files of the logs may be open at a time."""
        self.root = root
        self.settings = settings
        self.metrics = metrics
        self.node_id = settings.number("node.id")
        self.clock_ms = now_ms
        self.stopping = False
        self.response_room = ResponseRoom(settings.number("queued.max.response.bytes"))
        self._storage = DiskStorage(root, Descriptors(open_files))
        self._flushers = ThreadPoolExecutor(8, "flush")
        self._lazy: set[Partition] = set()
        self.readers = ThreadPoolExecutor(4, "read")
        self.files = ThreadPoolExecutor(2, "files")
        # One at a time: large requests of many clients wait for each other, and nobody else waits for them.
        self.large = ThreadPoolExecutor(1, "large")
        # Where producers' large batches are unpacked and looked at.
        self.lookers = ThreadPoolExecutor(2, "look")
        self.users = Users(root)
        self.acls: Acls | None = None
        if settings.text("authorizer.class.name"):
            self.acls = Acls(
                root,
                super_users=super_users(settings.text("super.users")),
                allow_by_default=settings.flag("allow.everyone.if.no.acl.found"),
            )
        self.sasl = Sasl(
            self.users,
            settings.text("sasl.enabled.mechanisms").split(","),
            settings.number("connection.failed.authentication.delay.ms") / 1000,
        )
        self.topics = Topics(root, settings, self._open_log, self._make_partition, self.files)
        self.sessions = FetchSessions(settings.number("max.incremental.fetch.session.cache.slots"))
        self.background = Background(self.topics, settings, self.files, self._lazy)
        self.coordination: Coordination

    @property
    def cluster_id(self) -> str:
        return self.topics.cluster_id

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open every log, read the journals back, finish what was decided, start the timers."""
        self.topics.load()
        for name, segment_bytes in _JOURNALS.items():
            if self.topics.get(name) is None:
                # These may be smaller than a topic's: that is what they are for.
                size = str(self.settings.number(segment_bytes))
                await self.topics.create(name, 1, {"cleanup.policy": "compact", INTERNAL_SEGMENT_BYTES: size})
        self.coordination = Coordination(
            transactions=TransactionCoordinator(from_settings(TransactionConfig, self.settings)),
            groups=GroupCoordinator(from_settings(GroupConfig, self.settings), self.topics),
            transaction_journal=PartitionJournal(self._only(TRANSACTION_STATE)),
            group_journal=PartitionJournal(self._only(CONSUMER_OFFSETS)),
            markers=self,
            clock_ms=self.clock_ms,
        )
        self.coordination.recover()
        self.coordination.start()
        self.background.start()

    def stop_waiting(self) -> None:
        """Answer the fetches that wait for data with what there is."""
        self.stopping = True
        for partition in self.topics.partitions():
            partition.wake_readers()

    async def stop(self) -> None:
        """Leave the logs closed and clean. Nothing may be running that uses them."""
        await self.background.stop()
        if hasattr(self, "coordination"):
            await self.coordination.stop()
        for partition in self.topics.partitions():
            await partition.settle()
        await asyncio.get_running_loop().run_in_executor(self.files, self.topics.close)
        for pool in (self._flushers, self.readers, self.files, self.large, self.lookers):
            pool.shutdown()
        self.sasl.close()

    def _only(self, topic: str) -> Partition:
        found = self.topics.get(topic)
        if found is None:
            raise KeyError(topic)
        return found.partitions[0]

    def _open_log(self, topic: str, directory: str, overrides: Mapping[str, str]) -> PartitionLog:
        return PartitionLog.open(self._storage, directory, log_config(self.settings, topic, overrides), self.clock_ms)

    def _make_partition(self, topic: str, index: int, log: PartitionLog) -> Partition:
        return Partition(topic, index, log, self._flushers, self.metrics, self._lazy)

    # -- what handlers and coordinators ask for -----------------------------------------------------------------

    def apply_settings(self, topics: list[Topic] | None = None) -> None:
        """Give the logs of these topics (all, if None) the settings now in force."""
        for topic in self.topics.all() if topics is None else topics:
            config = log_config(self.settings, topic.name, topic.overrides)
            for partition in topic.partitions:
                partition.log.update_config(config)

    async def write_marker(
        self,
        partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        commit: bool,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> ErrorCode:
        """Append the marker that ends a transaction in one partition; returns when it is durable."""
        found = self.topics.partition(partition.topic, partition.partition)
        if found is None:
            return ErrorCode.unknown_topic_or_partition
        try:
            result = found.append_marker(
                producer.producer_id,
                producer.epoch,
                commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
            if result.flush_required:
                await found.durable(result.last_offset)
        except LogError as error:
            return ErrorCode.unknown_topic_or_partition if found.deleted else ErrorCode(error.code)
        return ErrorCode.none

    def connection_closed(self, connection_id: int) -> None:
        """Groups and transactions go by time-outs; fetch sessions without a connection go when slots are wanted."""
        self.sessions.connection_closed(connection_id)

    def gauges(self) -> dict[str, tuple[str, int]]:
        partitions = self.topics.partitions()
        return {
            "topics": ("Topics, internal ones included.", len(self.topics.all())),
            "partitions": ("Partitions.", len(partitions)),
            "partitions_offline": ("Partitions that are offline.", sum(p.log.is_offline for p in partitions)),
            "log_bytes": ("Bytes of all logs.", sum(p.log.size_bytes for p in partitions)),
            "open_transactions": ("Transactions that are open.", self._open_transactions()),
            "fetch_sessions": ("Open fetch sessions.", len(self.sessions)),
        }

    def _open_transactions(self) -> int:
        ongoing = frozenset({TransactionState.ONGOING})
        return len(self.coordination.transactions.list_transactions(self.clock_ms(), states=ongoing))
