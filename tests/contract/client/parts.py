"""What the client's tests share: fresh topics, encoded rows, and a cluster whose answers can be lost once."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import AlterClientQuotasRequest

from atonce.client.cluster import Cluster
from atonce.client.errors import ConnectionLost, raise_for
from atonce.client.offsets import LATEST, TopicPartition, list_offsets
from atonce.client.read.fetch import fetch
from atonce.client.wire import Wire
from atonce.records.encode import encode

_numbers = itertools.count()


@functools.cache
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def fresh_name(prefix: str) -> str:
    return f"{prefix}-{os.getpid()}-{time.time_ns() // 1_000_000}-{next(_numbers)}"


def fresh_topic(servers: str, partitions: int = 1, **config: str) -> str:
    name = fresh_name("topic")
    admin(servers).create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    # Apache Kafka acknowledges when its controller knows; its broker hears of it a moment later.
    eventually(lambda: len(admin(servers).list_topics(name, timeout=20).topics[name].partitions) == partitions)
    return name


def quota(cluster: Cluster, client_id: str, name: str, value: float) -> None:
    """Kafka's own, for one client id: what goes beyond it is answered late, or with nothing at first."""
    entry = AlterClientQuotasRequest.EntryData
    wanted = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[entry.OpData(key=name, value=value, remove=False)],
    )
    answer = cluster.call(AlterClientQuotasRequest(entries=[wanted], validate_only=False))
    raise_for(answer.entries[0].error_code, "altering a quota")


def values(numbers: range | list[int]) -> Any:
    return pa.RecordBatch.from_pydict(
        {"key": pa.array([f"k{n}".encode() for n in numbers]), "value": pa.array([f"v{n}".encode() for n in numbers])}
    )


def blobs(numbers: range | list[int], *, per_blob: int = 10, **options: Any) -> list[Any]:
    """Encoded batches of `per_blob` records each, for one partition."""
    whole, found = values(numbers), []
    for start in range(0, whole.num_rows, per_blob):
        part = whole.slice(start, per_blob)
        found += [blob for _, _, blob in encode(part, np.zeros(part.num_rows, np.int32), 1, **options)]
    return found


def read_values(cluster: Cluster, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[str]:
    place = TopicPartition(topic, partition)
    end = list_offsets(cluster, {place: LATEST}, isolation)[place]
    return [
        value.decode()
        for batch in fetch(cluster, topic, partition, 0, end, isolation=isolation)
        for value in batch.column("value").to_pylist()
    ]


def eventually(found: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """What `found` gives as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = found()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {found}"
        time.sleep(0.02)


class LossyWire(Wire):
    """A wire that loses what it is told to lose."""

    cluster: LossyCluster

    def receive(self, timeout_ms: int) -> Any:
        answer = super().receive(timeout_ms)
        if self.cluster.lose_answers > 0:
            self.cluster.lose_answers -= 1
            self.cluster.fired += 1
            self.close()
            raise ConnectionLost("the answer was lost on its way")
        return answer

    def send(self, request: Any, splice: Any = None) -> None:
        if self.cluster.lose_requests > 0:
            self.cluster.lose_requests -= 1
            self.cluster.fired += 1
            self.close()
            raise ConnectionLost("the request was lost on its way")
        super().send(request, splice)


class LossyCluster(Cluster):
    """A real cluster with one-shot faults: the n next answers, or requests, of bulk data or of calls get lost."""

    lose_answers = 0
    lose_requests = 0
    lose_call_answer: str | None = None
    fired = 0

    def wire(self, node: int, timeout_ms: int = 30_000) -> Wire:
        wire = super().wire(node, timeout_ms)
        wire.__class__ = LossyWire
        wire.cluster = self  # type: ignore[attr-defined]
        return wire

    def call(self, request: Any, node: int | None = None, timeout_ms: int = 30_000) -> Any:
        answer = super().call(request, node, timeout_ms)
        if self.lose_call_answer is not None and type(request).__name__.startswith(self.lose_call_answer):
            self.lose_call_answer = None
            self.fired += 1
            raise ConnectionLost("the answer was lost on its way")
        return answer
