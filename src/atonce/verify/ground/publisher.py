"""Puts input into a topic, each record once: brokers may move and lose answers while the auditor writes, too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from atonce.connectors.contract import InputRecord
from atonce.verify.wire.cluster import Cluster

_BATCH = 50


class Publisher:
    """An idempotent producer of its own: what is sent again because its answer was lost stands in the log once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: tuple[int, int] | None = None
        self._next: dict[tuple[str, int], int] = {}

    def publish(self, topic: str, records: Sequence[InputRecord]) -> None:
        """Appends them in order, some at a time, partition by partition."""
        if self._producer is None:
            self._producer = self._cluster.patiently(self._cluster.new_producer)
        for partition in sorted({record.partition for record in records}):
            mine = [(record.key, record.value) for record in records if record.partition == partition]
            for at in range(0, len(mine), _BATCH):
                self._send(topic, partition, mine[at : at + _BATCH], self._producer)

    def _send(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        producer: tuple[int, int],
    ) -> None:
        sequence = self._next.get((topic, partition), 0)
        send = partial(self._cluster.produce, topic, partition, records, producer=producer, sequence=sequence)
        self._cluster.patiently(send)
        self._next[topic, partition] = sequence + len(records)
