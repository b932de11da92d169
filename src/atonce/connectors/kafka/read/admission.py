"""Admission: how many of the offsets that are there go into the next micro-batch.

By rows if `maxOffsetsPerTrigger` says so, always by bytes (`maxBytesPerTrigger`), and not before there are
`minOffsetsPerTrigger` or `maxTriggerDelay` has passed. Kafka tells offsets, not sizes, so the bytes per offset are
sampled with one small fetch, and only when the backlog might be large enough to matter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from atonce.client.cluster import Cluster
from atonce.client.offsets import TopicPartition
from atonce.connectors.kafka.read.options import SourceOptions
from atonce.connectors.kafka.read.ranges import limited, ranges

LARGE_RECORD_BYTES = 16 << 10
"""A backlog that fits at this size per record is admitted without looking."""


class Admission:
    """Lives in the planning process, one per query. Forgets everything on restart, which only costs a sample."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._last_batch_at: float | None = None

    def admit(
        self,
        cluster: Cluster,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        *,
        draining: bool,
    ) -> dict[TopicPartition, int]:
        """`end`, or less. While draining (Trigger.AvailableNow) there is no waiting for more."""
        backlog = sum(part.size for part in ranges(start, end))
        if not draining and self._wait_for_more(backlog):
            return {tp: start.get(tp, at) for tp, at in end.items()}
        if backlog:
            self._last_batch_at = time.monotonic()
        most = backlog
        if self._options.max_offsets is not None:
            most = min(most, self._options.max_offsets)
        most = min(most, self._rows_by_bytes(cluster, start, end, most))
        return limited(start, end, most) if most < backlog else dict(end)

    def _wait_for_more(self, backlog: int) -> bool:
        wanted = self._options.min_offsets
        if wanted is None or backlog >= wanted:
            return False
        if self._last_batch_at is None:
            self._last_batch_at = time.monotonic()
        return time.monotonic() - self._last_batch_at < self._options.max_delay_ms / 1000

    def _rows_by_bytes(
        self, cluster: Cluster, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows: int
    ) -> int:
        allowed = self._options.max_bytes
        if allowed is None or rows * LARGE_RECORD_BYTES <= allowed:
            return rows
        from atonce.client.read.sample import bytes_per_offset  # brings the compiled codec: only when it is needed

        # The largest backlog of each topic speaks for the topic.
        biggest = {part.tp.topic: part for part in sorted(ranges(start, end), key=lambda part: part.size)}
        sizes = [bytes_per_offset(cluster, part.tp, part.start, self._options.isolation) for part in biggest.values()]
        known = [size for size in sizes if size is not None]
        if not known:
            return rows
        return max(1, int(allowed / max(known)))
