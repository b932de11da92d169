"""Transactions as an operator sees them: list, describe, find the hanging ones, abort.

A *hanging* transaction is open on a partition while its coordinator knows nothing of it any more: nobody will ever end
it, and read_committed readers of that partition wait for ever. Kafka's own search (KIP-664) is followed: leaders tell
their open producers, coordinators tell their transactions, and what only the partition knows is hanging.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import InitProducerIdRequest, WriteTxnMarkersRequest

from atonce.client.answers import left_out, only
from atonce.client.cluster import Cluster
from atonce.client.errors import Code, raise_for
from atonce.client.offsets import TopicPartition
from atonce.client.operate import admin
from atonce.client.retry import retry
from atonce.errors import AtOnceError, UsageError

RETRY_MS = 15_000
OFFSETS_TOPIC = "__consumer_offsets"
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    """Milliseconds since the epoch; -1 while no transaction is open."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOnPartition:
    """A transaction that a partition's leader holds open."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def list_transactions(cluster: Cluster, producer_ids: Iterable[int] = ()) -> list[Listed]:
    """Each broker answers for the transactional ids it coordinates, so all are asked."""
    found = []
    for broker in admin.brokers(cluster):
        answer = _list_on(cluster, broker.id, list(producer_ids))
        found += [
            Listed(
                transactional_id=each.transactional_id,
                coordinator=broker.id,
                producer_id=each.producer_id,
                state=each.transaction_state,
            )
            for each in answer.transaction_states
        ]
    return sorted(found, key=lambda each: each.transactional_id)


def _list_on(cluster: Cluster, node: int, producer_ids: list[int]) -> Any:
    def ask() -> Any:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=producer_ids, max_version=0)
        answer = cluster.call(request, node=node)
        raise_for(answer.error_code, f"listing transactions of broker {node}")
        return answer

    return retry(ask, limit_ms=RETRY_MS)


def describe_transaction(cluster: Cluster, transactional_id: str) -> Described:
    what = f"describing transactional id {transactional_id}"

    def ask() -> tuple[int, Any]:
        node = cluster.coordinator(transactional_id, "transaction")
        answer = cluster.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), node=node)
        state = only(answer.transaction_states, what)
        if state.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND:
            raise UsageError(
                f"no transactional id {transactional_id!r} is known: `atonce transactions list` shows them all"
            )
        raise_for(state.error_code, what)
        return node, state

    node, state = retry(ask, limit_ms=RETRY_MS, on_retry=_forgetting(cluster, transactional_id))
    partitions = sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
    return Described(
        transactional_id=transactional_id,
        coordinator=node,
        state=state.transaction_state,
        producer_id=state.producer_id,
        epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=state.transaction_start_time_ms,
        partitions=tuple(partitions),
    )


def open_on_partitions(cluster: Cluster, names: Iterable[str] | None = None) -> list[OpenOnPartition]:
    """What the leaders of these topics (default: all, internal ones too) hold open."""
    wanted = set(names) if names is not None else None
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    everything = cluster.topics()
    offsets = cluster.topic(OFFSETS_TOPIC)
    if offsets is not None:
        # Transactional offset commits are records too, and can hang like any other.
        everything[OFFSETS_TOPIC] = offsets
    for name, topic in everything.items():
        if wanted is None or name in wanted:
            for partition in topic.partitions:
                if partition.leader >= 0:
                    by_leader[partition.leader][name].append(partition.index)
    found = []
    for leader, partitions in by_leader.items():
        topic_request = DescribeProducersRequest.TopicRequest
        request = DescribeProducersRequest(
            topics=[topic_request(name=name, partition_indexes=indexes) for name, indexes in partitions.items()]
        )
        answer = cluster.call(request, node=leader)
        served = {(each.name, part.partition_index) for each in answer.topics for part in each.partitions}
        for name, index in ((name, index) for name, indexes in partitions.items() for index in indexes):
            if (name, index) not in served:
                raise left_out(f"asking for producers of {name}-{index}")
        for answered in answer.topics:
            for each in answered.partitions:
                raise_for(each.error_code, f"asking for producers of {answered.name}-{each.partition_index}")
                found += [
                    OpenOnPartition(
                        topic=answered.name,
                        partition=each.partition_index,
                        producer_id=producer.producer_id,
                        epoch=producer.producer_epoch,
                        coordinator_epoch=producer.coordinator_epoch,
                        start_offset=producer.current_txn_start_offset,
                        last_timestamp_ms=producer.last_timestamp,
                    )
                    for producer in each.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))


def find_hanging(
    cluster: Cluster, names: Iterable[str] | None = None, *, older_than_ms: int = 15 * 60_000
) -> list[OpenOnPartition]:
    """Open on a partition for longer than `older_than_ms`, and not among what any coordinator still has to end."""
    oldest = int(time.time() * 1000) - older_than_ms
    suspects = [each for each in open_on_partitions(cluster, names) if each.last_timestamp_ms <= oldest]
    if not suspects:
        return []
    owners: dict[int, Listed] = {
        each.producer_id: each for each in list_transactions(cluster, {suspect.producer_id for suspect in suspects})
    }
    known: dict[int, set[TopicPartition]] = {}
    for producer_id, owner in owners.items():
        described = describe_transaction(cluster, owner.transactional_id)
        known[producer_id] = set(described.partitions) if described.state in _OPEN else set()
    return [
        each
        for each in suspects
        if TopicPartition(each.topic, each.partition) not in known.get(each.producer_id, set())
    ]


def abort_by_id(cluster: Cluster, transactional_id: str) -> Described:
    """Fences the producer of a transactional id, which aborts what it left open. Returns what was there before."""
    before = describe_transaction(cluster, transactional_id)

    def fence() -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=max(before.timeout_ms, 1),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = cluster.call(request, node=cluster.coordinator(transactional_id, "transaction"))
        raise_for(answer.error_code, f"fencing transactional id {transactional_id}")

    # The coordinator says "not now" until the markers of the abort are written.
    retry(fence, limit_ms=RETRY_MS, on_retry=_forgetting(cluster, transactional_id))
    return before


def _forgetting(cluster: Cluster, transactional_id: str) -> Callable[[AtOnceError], None]:
    return lambda error: cluster.forget_coordinator(transactional_id, "transaction", error)


def abort_hanging(cluster: Cluster, topic: str, partition: int, start_offset: int) -> OpenOnPartition:
    """Writes an abort marker for a transaction that no coordinator will end. The leader checks producer and epoch."""
    open_here = [each for each in open_on_partitions(cluster, [topic]) if each.partition == partition]
    match = next((each for each in open_here if each.start_offset == start_offset), None)
    if match is None:
        starts = ", ".join(str(each.start_offset) for each in open_here) or "none"
        raise UsageError(
            f"{topic}-{partition} has no open transaction that starts at offset {start_offset} (open: {starts})"
        )
    leader = cluster.leader(topic, partition)
    writable = WriteTxnMarkersRequest.WritableTxnMarker
    marker = writable(
        producer_id=match.producer_id,
        producer_epoch=match.epoch,
        transaction_result=False,
        topics=[writable.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=match.coordinator_epoch,
    )
    # Version 1: an operator's marker repeats the transaction's own epoch, which version 2 would refuse.
    answer = cluster.call(WriteTxnMarkersRequest(markers=[marker], max_version=1), node=leader)
    what = f"aborting the transaction on {topic}-{partition} from offset {start_offset}"
    written = only(only(only(answer.markers, what).topics, what).partitions, what)
    raise_for(written.error_code, what)
    return match
