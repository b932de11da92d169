"""Puts input into topics, each record once: brokers may move and lose answers while the auditor writes, too."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial

from atonce.connectors.contract import InputRecord
from atonce.verify.ground.encoding import batch_of
from atonce.verify.ground.layout import Chunk, Ends, Step
from atonce.verify.wire.asker import VERSIONS, ClusterError
from atonce.verify.wire.cluster import Cluster, milliseconds
from atonce.verify.wire.schemas import nested

_BATCH = 50
_TRANSACTION_MS = 600_000
"""Longer than any run keeps one open, and less than brokers allow by default."""
_DUPLICATE_SEQUENCE = 46
_MARKERS_S = 20.0


class Publisher:
    """An idempotent producer of its own: what is sent again because its answer was lost stands in the log once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: tuple[int, int] | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._open: list[tuple[Transaction, Step]] = []

    def publish(self, topic: str, records: Sequence[InputRecord]) -> None:
        """Appends them in order, some at a time, partition by partition."""
        for partition in sorted({record.partition for record in records}):
            mine = [record for record in records if record.partition == partition]
            for at in range(0, len(mine), _BATCH):
                self._plain(topic, Chunk(False, partition, tuple(mine[at : at + _BATCH])))

    def lay(self, topics: tuple[str, str], steps: Sequence[Step]) -> None:
        """As the layout has it; transactions that stay open are kept for `end_open`."""
        for step in steps:
            if step.ends is Ends.PLAIN:
                for chunk in step.chunks:
                    self._plain(topics[chunk.beside], chunk)
                continue
            transaction = Transaction(self._cluster, f"{topics[0]}-input-{secrets.token_hex(4)}")
            for chunk in step.chunks:
                transaction.send(topics[chunk.beside], chunk)
            if step.later:
                self._open.append((transaction, step))
            else:
                transaction.end(commit=step.ends is Ends.COMMIT)

    def end_open(self, *, abort: bool = False) -> None:
        """The transactions that were left open end as they were meant to, or are all given up."""
        while self._open:
            transaction, step = self._open.pop(0)
            transaction.end(commit=step.ends is Ends.COMMIT and not abort)

    def _plain(self, topic: str, chunk: Chunk) -> None:
        if self._producer is None:
            self._producer = self._cluster.patiently(self._cluster.new_producer)
        place = (topic, chunk.partition)
        sequence = self._next.get(place, 0)
        batch = batch_of(
            chunk.records, producer=self._producer, sequence=sequence, codec=chunk.codec, now_ms=int(time.time() * 1000)
        )
        self._cluster.patiently(partial(_append, self._cluster, topic, chunk.partition, batch))
        self._next[place] = sequence + len(chunk.records)


class Transaction:
    """One transaction of the input, under an id of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._producer: tuple[int, int] = cluster.patiently(self._begin)
        self._ends: dict[tuple[str, int], int] = {}

    def _begin(self) -> tuple[int, int]:
        answer = self._cluster.ask(
            "init_producer_id",
            self._cluster.coordinator(self._name, 1),
            transactional_id=self._name,
            transaction_timeout=milliseconds(_TRANSACTION_MS),
            producer_id=-1,
            producer_epoch=-1,
        )
        _check("init_producer_id", answer.error_code, self._name)
        return int(answer.producer_id), int(answer.producer_epoch)

    def send(self, topic: str, chunk: Chunk) -> None:
        self._cluster.patiently(partial(self._add, topic, chunk.partition))
        batch = batch_of(
            chunk.records,
            producer=self._producer,
            sequence=0,
            codec=chunk.codec,
            transactional=True,
            now_ms=int(time.time() * 1000),
        )
        append = partial(_append, self._cluster, topic, chunk.partition, batch, self._name)
        base = self._cluster.patiently(append)
        self._ends[topic, chunk.partition] = base + len(chunk.records)

    def _add(self, topic: str, partition: int) -> None:
        kind = nested("add_partitions_to_txn", VERSIONS["add_partitions_to_txn"], "AddPartitionsToTxnTopic")
        answer = self._cluster.ask(
            "add_partitions_to_txn",
            self._cluster.coordinator(self._name, 1),
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=(kind(name=topic, partitions=(partition,)),),
        )
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        _check("add_partitions_to_txn", code, topic)

    def end(self, *, commit: bool) -> None:
        """Returns when its markers stand in the log: what is sent next must come after them."""
        self._cluster.patiently(partial(self._end, commit))
        deadline = time.monotonic() + _MARKERS_S
        for (topic, partition), end in self._ends.items():
            while time.monotonic() < deadline:
                if self._cluster.patiently(partial(self._cluster.offsets, topic))[partition] > end:
                    break
                time.sleep(0.01)

    def _end(self, commit: bool) -> None:
        answer = self._cluster.ask(
            "end_txn",
            self._cluster.coordinator(self._name, 1),
            transactional_id=self._name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )
        _check("end_txn", answer.error_code, self._name)


def _append(cluster: Cluster, topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> int:
    """One batch, acks=all; where it stands now. Sent again with the same sequence it stands in the log once."""
    v = VERSIONS["produce"]
    part = nested("produce", v, "PartitionProduceData")(index=partition, records=batch)
    data = nested("produce", v, "TopicProduceData")(name=topic, partition_data=(part,))
    answer = cluster.ask(
        "produce",
        cluster.at(topic, partition),
        transactional_id=transactional_id,
        acks=-1,
        timeout=milliseconds(10000),
        topic_data=(data,),
    )
    done = answer.responses[0].partition_responses[0]
    if int(done.error_code) != _DUPLICATE_SEQUENCE:
        _check("produce", done.error_code, f"{topic}/{partition}")
    return int(done.base_offset)


def _check(what: str, code: int, where: str) -> None:
    if int(code) != 0:
        raise ClusterError(f"{what} on {where}: the broker answered error {int(code)}")
