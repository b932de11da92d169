"""How large records are, from one small fetch: Kafka tells how many offsets there are, not how many bytes."""

from __future__ import annotations

from kafka.protocol.consumer import FetchRequest

from atonce.client.cluster import Cluster
from atonce.client.errors import is_retriable
from atonce.client.offsets import TopicPartition, isolation_level
from atonce.client.read.request import Question, answered
from atonce.errors import AtOnceError
from atonce.records.columns import BASE_OFFSET, LAST_OFFSET, locate

SAMPLE_BYTES = 128 << 10
SAMPLE_TIMEOUT_MS = 5_000


def bytes_per_offset(cluster: Cluster, tp: TopicPartition, start: int, isolation: str) -> float | None:
    """Bytes on the wire per offset around `start`; None when nothing can be read there just now."""
    question = Question(
        topic=tp.topic,
        partition=tp.partition,
        position=start,
        isolation_level=isolation_level(isolation),
        max_bytes=SAMPLE_BYTES,
        max_wait_ms=0,
    )
    try:
        leader = cluster.leader(tp.topic, tp.partition)
        answer = cluster.call(question.request(cluster.max_version(FetchRequest)), leader, SAMPLE_TIMEOUT_MS)
    except AtOnceError as error:
        if not is_retriable(error):
            raise
        return None
    found = answered(answer, tp.partition)
    if found is None or found.error_code or not found.records:
        return None
    located = locate(found.records, str(tp))
    if not len(located.table):
        return None
    span = int(located.table[-1, LAST_OFFSET]) + 1 - int(located.table[0, BASE_OFFSET])
    return located.used_bytes / span if span > 0 else None
