"""What pipeline tests are made of: input records, outputs that can be read back, and observers that act at a step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import atonce
from atonce.delivery.events import Event, Step


@dataclass(frozen=True, slots=True)
class Output:
    sink: Any
    values: Callable[[], list[str]]
    """Every delivered value, as a reader with read_committed sees it."""


def produce(servers: str, topic: str, numbers: Iterable[int], partitions: int = 3) -> None:
    """Record i has key i, value "value i", and stands in partition i % partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for i in numbers:
        producer.produce(topic, key=str(i), value=f"value {i}", partition=i % partitions)
    assert producer.flush(30) == 0


def consume(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[str | None, str | None]]:
    """Everything in a topic, as (key, value)."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in found])
    records: list[tuple[str | None, str | None]] = []
    ended = 0
    while ended < len(found):
        message = consumer.poll(30)
        assert message is not None, f"{topic} gave nothing for 30 s"
        if message.error():
            ended += 1
            continue
        key, value = message.key(), message.value()
        records.append((key.decode() if key else None, value.decode() if value else None))
    consumer.close()
    return records


def kafka_output(name: str, servers: str, scratch: Path, url: str) -> Output:
    topic = f"out-{name}"
    return Output(atonce.Kafka(topic, servers=servers), lambda: [value or "" for _, value in consume(servers, topic)])


def postgres_output(name: str, servers: str, scratch: Path, url: str) -> Output:
    import psycopg

    name = name.replace("-", "_")

    def values() -> list[str]:
        with psycopg.connect(url) as connection:
            return [str(row[0]) for row in connection.execute(f"SELECT value FROM out_{name}")]  # type: ignore[arg-type]

    return Output(atonce.Postgres(url, table=f"out_{name}", create=True), values)


def sqlite_output(name: str, servers: str, scratch: Path, url: str) -> Output:
    name = name.replace("-", "_")
    file = scratch / f"{name}.db"

    def values() -> list[str]:
        with sqlite3.connect(file) as connection:
            return [str(row[0]) for row in connection.execute(f"SELECT value FROM out_{name}")]

    return Output(atonce.SQLite(str(file), table=f"out_{name}"), values)


OUTPUTS: dict[str, Callable[[str, str, Path, str], Output]] = {
    "kafka": kafka_output,
    "postgres": postgres_output,
    "sqlite": sqlite_output,
}


@dataclass(slots=True)
class Watcher:
    """Keeps all events, and does something at a step, once."""

    at: Step | None = None
    act: Callable[[Event], None] | None = None
    events: list[Event] = field(default_factory=list)

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if self.act is not None and event.step is self.at:
            act, self.act = self.act, None
            act(event)

    def steps(self) -> list[Step]:
        return [event.step for event in self.events]
