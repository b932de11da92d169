"""The neutral judge of a benchmark: fills topics, watches what becomes visible, counts it. librdkafka, never ours.

Throughput is what a read_committed reader of the output could have read, seen from outside, so that no contestant
reports on itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from atonce.errors import AtOnceError, UsageError

POLL_S = 0.05
PATIENCE_S = 20.0


class NotDelivered(AtOnceError):
    """A contestant did not deliver what it was given, so it has no result."""


@dataclass(frozen=True, slots=True)
class Point:
    """At this moment (time.monotonic()) so many records were visible."""

    at: float
    records: int


class Judge:
    """Topics of one cluster, as an ordinary client sees them."""

    def __init__(self, servers: str) -> None:
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise UsageError("benchmarks judge with confluent-kafka: pip install -r requirements-dev.txt") from error
        self.servers = servers
        self._admin: Any = AdminClient({"bootstrap.servers": servers, "log_level": 2})

    def create(self, topic: str, partitions: int, settings: dict[str, str] | None = None) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(topic, num_partitions=partitions, config=settings or {})
        for outcome in self._admin.create_topics([wanted]).values():
            try:
                outcome.result(30)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                # Not ours to fill or to delete, until the user says so.
                raise UsageError(
                    f"topic {topic!r} exists on {self.servers} already: a benchmark of before was killed, or another "
                    f"one runs. Next: if it may go, `atonce topics delete {topic} --servers {self.servers}`."
                ) from None
        deadline = time.monotonic() + 30
        while len(self._partitions(topic)) < partitions:
            if time.monotonic() > deadline:
                raise NotDelivered(f"topic {topic} did not appear within 30 s")
            time.sleep(POLL_S)

    def delete(self, *topics: str) -> None:
        if not topics:
            return
        for outcome in self._admin.delete_topics(list(topics)).values():
            outcome.result(30)

    def topics(self, prefix: str) -> list[str]:
        """Those whose name begins so."""
        found = _patiently(lambda: self._admin.list_topics(timeout=10).topics)
        return sorted(topic for topic in found if topic.startswith(prefix))

    def fill(self, topic: str, records: int, size: int) -> None:
        """Keyed records of `size` bytes of value, lower-case letters, so that upper-casing has work to do."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
                "partitioner": "murmur2_random",
                "log_level": 2,
            }
        )
        filler = (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]
        step = 10_000
        for begin in range(0, records, step):
            pending = [
                {"key": b"%d" % n, "value": b"%012d" % n + filler[12:]}
                for n in range(begin, min(begin + step, records))
            ]
            while pending:
                producer.produce_batch(topic, pending)
                pending = [
                    {"key": each["key"], "value": each["value"]} for each in pending if each.get("_error") is not None
                ]
                if pending:
                    producer.poll(0.05)
        if producer.flush(120):
            raise NotDelivered(f"{topic} could not be filled: records were left after 120 s")

    def visible(self, topic: str) -> int:
        """Offsets below the last stable one, summed: records plus one marker per transaction and partition."""
        from confluent_kafka import IsolationLevel

        return self._end(topic, IsolationLevel.READ_COMMITTED)

    def written(self, topic: str) -> int:
        """Offsets, summed, of what has been written, committed or not."""
        from confluent_kafka import IsolationLevel

        return self._end(topic, IsolationLevel.READ_UNCOMMITTED)

    def _end(self, topic: str, isolation: Any) -> int:
        from confluent_kafka.admin import OffsetSpec

        def ask() -> int:
            wanted = {partition: OffsetSpec.latest() for partition in self._partitions(topic)}
            answers = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=10)
            return sum(max(0, answer.result(10).offset) for answer in answers.values())

        total: int = _patiently(ask)
        return total

    def watch(
        self,
        topic: str,
        records: int,
        timeout_s: float,
        alive: Callable[[], None],
        first: Callable[[], None],
        settle_s: float = 1.5,
    ) -> list[Point]:
        """Every step of the visible output until all of it is there.

        `alive` raises when the contestant has died; `first` is called when it has begun to write. Not when that becomes
        visible: for some this is at once, for others at the end of a long transaction.
        """
        begun = time.monotonic()
        steps = [Point(begun, 0)]
        writing = False
        while True:
            alive()
            now = time.monotonic()
            if not writing and self.written(topic):
                writing = True
                first()
            count = self.visible(topic)
            if count > steps[-1].records:
                steps.append(Point(now, count))
            elif steps[-1].records >= records and now - steps[-1].at > settle_s:
                return steps
            if now - begun > timeout_s:
                raise NotDelivered(f"only {steps[-1].records:,} of {records:,} records after {timeout_s:g} s")
            time.sleep(POLL_S)

    def count(self, topic: str) -> int:
        """Records that a read_committed consumer really gets, markers and aborted ones left out."""
        from confluent_kafka import Consumer, KafkaError

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "atonce-bench-judge",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 2,
                "queued.min.messages": 500_000,
                "log_level": 2,
            }
        )
        partitions = self._partitions(topic)
        consumer.assign(partitions)
        ended: set[int] = set()
        total = 0
        deadline = time.monotonic() + 300
        while len(ended) < len(partitions):
            for message in consumer.consume(10_000, timeout=1.0):
                error = message.error()
                if error is None:
                    total += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            if time.monotonic() > deadline:
                raise NotDelivered(f"{topic} could not be counted within 300 s")
        consumer.close()
        return total

    def _partitions(self, topic: str) -> list[Any]:
        from confluent_kafka import TopicPartition

        listed = _patiently(lambda: self._admin.list_topics(topic, timeout=10).topics[topic].partitions)
        return [TopicPartition(topic, index, 0) for index in sorted(listed)]


def _patiently(ask: Callable[[], Any]) -> Any:
    """A busy broker may lose its leadership for a moment; that is no fault of the contestant's."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise NotDelivered(f"the cluster did not answer the judge for {PATIENCE_S:g} s: {error}") from error
            time.sleep(POLL_S)
