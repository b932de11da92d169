"""Load that remembers what it was promised: producers that note every ack, a reader that notes every record."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.broker.wire import Wire

PARTITIONS = 4
TXN_RECORDS = 8
_MOST_AHEAD = 10_000
IDEMPOTENT, TRANSACTIONAL, COPIED = "idempotent", "transactional", "copied"
TOPICS = (IDEMPOTENT, TRANSACTIONAL, COPIED)
PLACES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


class Worker:
    """A thread that runs until told to stop, and hands its error to whoever joins it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.progress = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

    def run(self) -> None:
        """The work; ends soon after `stopping` is set."""

    def join(self, seconds: float) -> None:
        """Stop it and wait for its end; it may take its time as long as it gets on."""
        self.stopping.set()
        before = -1
        while self._thread.is_alive() and self.progress != before:
            before = self.progress
            self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            faulthandler.dump_traceback()
            raise AssertionError(f"{type(self).__name__} is stuck at {self.progress}")

    def check(self) -> None:
        if self._error is not None:
            raise self._error


class IdempotentProducer(Worker):
    """Numbers 0, 1, 2 …, number n into partition n mod 4. Retries as long as it takes."""

    def __init__(self, servers: str, copier: Worker) -> None:
        super().__init__()
        self._copier = copier
        self.acked: dict[int, tuple[int, int]] = {}
        self.failed: dict[int, str] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": 300_000,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "queue.buffering.max.messages": 2000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            if self.progress - self._copier.progress > _MOST_AHEAD:
                self._producer.poll(0.05)  # the copier is a slower client; it must not be left with hours of work
                continue
            try:
                self._producer.produce(
                    IDEMPOTENT, str(number), partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            if number % 50 == 0:
                self._producer.poll(0.005)
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were never acknowledged"

    def _delivered(self, error: Any, message: Any) -> None:
        number = int(message.value())
        if error is None:
            self.acked[number] = (message.partition(), message.offset())
            self.progress += 1
        else:
            self.failed[number] = str(error)


class TransactionalProducer(Worker):
    """Transactions of eight records over all partitions; every fifth is aborted. Notes what it knows of each."""

    def __init__(self, servers: str, transactional_id: str, rng: Random) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.unknown: set[str] = set()
        self._rng = rng
        self._config = {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 30_000,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "linger.ms": 2,
            "log_level": 0,
        }

    def run(self) -> None:
        number = 0
        producer: Producer | None = None
        while not self.stopping.is_set():
            if producer is None:
                producer = self._begin_anew()
                continue
            name = f"{self.transactional_id}/{number}"
            number += 1
            if not self._one(producer, name):
                producer = None
            self.progress += 1

    def _begin_anew(self) -> Producer | None:
        producer = Producer(self._config)
        try:
            producer.init_transactions(30)
            return producer
        except KafkaException:
            return None

    def _one(self, producer: Producer, name: str) -> bool:
        """False if the producer is of no use any longer."""
        abort = self._rng.random() < 0.2
        try:
            producer.begin_transaction()
            for i in range(TXN_RECORDS):
                producer.produce(TRANSACTIONAL, f"{name}/{i}", partition=i % PARTITIONS)
            producer.flush(20)
        except (KafkaException, BufferError):
            # Nothing asked for a commit: it is aborted by us, by the next producer or by its time-out.
            self.aborted.add(name)
            return self._end(producer.abort_transaction)
        if abort:
            self.aborted.add(name)
            return self._end(producer.abort_transaction)
        # From here on it may be committed, whatever we hear.
        self.unknown.add(name)
        if self._end(producer.commit_transaction):
            self.unknown.discard(name)
            self.committed.add(name)
            return True
        return False

    def _end(self, end: Any) -> bool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                end(10)
                return True
            except KafkaException as failed:
                error = failed.args[0]
                if not error.retriable():
                    return False
        return False


@dataclass
class Seen:
    """Records by (topic, partition): (offset, value), in the order of their arrival."""

    records: dict[tuple[str, int], list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, message: Any) -> None:
        self.records[(message.topic(), message.partition())].append((message.offset(), message.value().decode()))


class Reader(Worker):
    """Reads committed records as they come, by position, across every crash."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.seen = Seen()
        self._servers = servers

    def run(self) -> None:
        consumer = reader(self._servers, "live")
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        self.seen.add(message)
                        self.progress += 1
        finally:
            consumer.close()


def reader(servers: str, group: str, **config: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            **config,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in PLACES])
    return consumer


def wait_until_stable(servers: str, seconds: float) -> None:
    """Until the last stable offset has reached the high watermark everywhere: no transaction is left hanging."""
    deadline = time.monotonic() + seconds
    with Wire(servers) as wire:
        while True:
            ends = [_ends(wire, isolation_level) for isolation_level in (0, 1)]
            if ends[0] == ends[1]:
                return
            assert time.monotonic() < deadline, f"the last stable offset stands still: {ends[1]} of {ends[0]}"


def _ends(wire: Wire, isolation_level: int) -> dict[tuple[str, int], int]:
    asked = [
        {"name": topic, "partitions": [{"partition_index": p, "timestamp": -1} for p in range(PARTITIONS)]}
        for topic in TOPICS
    ]
    answer = wire.ask(2, 5, replica_id=-1, isolation_level=isolation_level, topics=asked)
    return {(topic.name, one.partition_index): one.offset for topic in answer.topics for one in topic.partitions}


def read_everything(servers: str, seconds: float) -> Seen:
    """Every committed record, from the first to the last."""
    consumer = reader(servers, "audit", **{"enable.partition.eof": True})
    seen = Seen()
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + seconds
    try:
        while len(ended) < len(PLACES):
            assert time.monotonic() < deadline, f"only {sorted(ended)} could be read to their end"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    seen.add(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
                else:
                    raise AssertionError(str(message.error()))
    finally:
        consumer.close()
    return seen
