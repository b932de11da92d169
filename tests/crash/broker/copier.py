"""Consume, transform, produce under transaction protocol v2, spoken by hand.

Both client libraries hang in send_offsets_to_transaction for ever if the broker dies at the right moment (librdkafka
2.16 also on Apache Kafka, kafka-python 3.0 because it drops a dequeued request), so they cannot judge a broker here.
"""

from __future__ import annotations

import time
from typing import Any

from atonce.records.batch import iter_batches
from atonce.records.record import build_batch, iter_records
from tests.crash.broker.load import COPIED, IDEMPOTENT, PARTITIONS, Worker
from tests.interop.broker.wire import Wire

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FETCH, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 0, 1, 2, 9, 22, 26, 28
NAME = "copier"
_PASSING = ("concurrent_transactions", "not_enough_replicas", "coordinator_not_available", "unstable_offset_commit")


class Failed(Exception):
    """An answer that ends this attempt: begin anew from what is committed, after fencing ourselves."""


class Copier(Worker):
    """Reads one topic and writes another, its input offsets in the same transaction: each record once, in order."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self._servers = servers
        self.attempts = 0

    def run(self) -> None:
        while True:
            self.attempts += 1
            try:
                with Wire(self._servers, NAME) as wire:
                    self._copy_until_told(wire)
                    return
            except (OSError, Failed):
                time.sleep(0.05)  # as any client backs off

    def _copy_until_told(self, wire: Wire) -> None:
        given = self._ask(
            wire,
            INIT_PRODUCER_ID,
            5,
            transactional_id=NAME,
            transaction_timeout=30_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        producer = (given.producer_id, given.producer_epoch)
        done = self._committed(wire)
        self.progress = sum(done.values())  # a commit whose answer was lost counts too
        while True:
            records = self._fetch(wire, done)
            if records:
                producer = self._transaction(wire, producer, records, done)
                self.progress = sum(done.values())
            elif self.stopping.is_set() and done == self._ends(wire):
                return

    def _transaction(
        self, wire: Wire, producer: tuple[int, int], records: dict[int, list[Any]], done: dict[int, int]
    ) -> tuple[int, int]:
        """Returns the producer of the next transaction."""
        pid, epoch = producer
        now_ms = int(time.time() * 1000)
        for partition, found in records.items():
            batch = build_batch(
                [(record.key, record.value) for record in found],
                timestamp_ms=now_ms,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=0,
                transactional=True,
            )
            data = [{"name": COPIED, "partition_data": [{"index": partition, "records": batch}]}]
            self._ask(wire, PRODUCE, 12, transactional_id=NAME, acks=-1, timeout=5000, topic_data=data)
        ends = {partition: found[-1].offset + 1 for partition, found in records.items()}
        offsets = [
            {"partition_index": p, "committed_offset": end, "committed_leader_epoch": -1, "committed_metadata": ""}
            for p, end in ends.items()
        ]
        who = {"transactional_id": NAME, "producer_id": pid, "producer_epoch": epoch}
        topics = [{"name": IDEMPOTENT, "partitions": offsets}]
        self._ask(wire, TXN_OFFSET_COMMIT, 5, **who, group_id=NAME, generation_id=-1, member_id="", topics=topics)
        ended = self._ask(wire, END_TXN, 5, **who, committed=True)
        done.update(ends)
        return ended.producer_id, ended.producer_epoch

    def _ask(self, wire: Wire, api_key: int, version: int, **values: Any) -> Any:
        """An answer without an error in it; what passes is asked again."""
        deadline = time.monotonic() + 30
        while True:
            answer = wire.ask(api_key, version, **values)
            codes = set(_codes(answer)) - {"none"}
            if not codes:
                return answer
            if not codes <= set(_PASSING) or time.monotonic() > deadline:
                raise Failed(f"API {api_key}: {codes}")

    def _committed(self, wire: Wire) -> dict[int, int]:
        topics = [{"name": IDEMPOTENT, "partition_indexes": list(range(PARTITIONS))}]
        answer = self._ask(wire, OFFSET_FETCH, 7, group_id=NAME, topics=topics, require_stable=True)
        return {one.partition_index: max(0, one.committed_offset) for one in answer.topics[0].partitions}

    def _ends(self, wire: Wire) -> dict[int, int]:
        topics = [
            {"name": IDEMPOTENT, "partitions": [{"partition_index": p, "timestamp": -1} for p in range(PARTITIONS)]}
        ]
        answer = self._ask(wire, LIST_OFFSETS, 5, replica_id=-1, isolation_level=1, topics=topics)
        return {one.partition_index: one.offset for one in answer.topics[0].partitions}

    def _fetch(self, wire: Wire, done: dict[int, int]) -> dict[int, list[Any]]:
        wanted = [{"partition": p, "fetch_offset": offset, "partition_max_bytes": 30_000} for p, offset in done.items()]
        answer = self._ask(
            wire,
            FETCH,
            4,
            replica_id=-1,
            max_wait=200,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=1,
            topics=[{"topic": IDEMPOTENT, "partitions": wanted}],
        )
        found: dict[int, list[Any]] = {}
        for one in answer.responses[0].partitions:
            data = bytes(one.records or b"")
            for position, header in iter_batches(data):
                for record in iter_records(data[position : position + header.size]):
                    if record.offset >= done[one.partition_index]:
                        found.setdefault(one.partition_index, []).append(record)
        return found


def _codes(value: Any) -> list[str]:
    """Every error code in an answer, wherever it stands."""
    if isinstance(value, tuple):
        return [code for one in value for code in _codes(one)]
    names = getattr(value, "__slots__", ()) if hasattr(value, "__version__") else ()
    found = []
    for name in names:
        inner = getattr(value, name)
        if name == "error_code":
            found.append(inner.name)
        elif isinstance(inner, tuple) or hasattr(inner, "__version__"):
            found += _codes(inner)
    return found
