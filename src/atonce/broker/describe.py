"""Topics as the describing APIs show them: one node leads everything and is the only replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atonce.broker.messages import ErrorCode
from atonce.broker.partition import Partition

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState
    from atonce.broker.topics import Topic

# Kafka's bit sets of AclOperation: everything is allowed where there is no authorizer.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(2**31)


def describe_partition(broker: BrokerState, partition: Partition) -> dict[str, Any]:
    node = (broker.node_id,)
    offline = partition.log.is_offline
    return {
        "error_code": ErrorCode.leader_not_available if offline else ErrorCode.none,
        "partition_index": partition.index,
        "leader_id": -1 if offline else broker.node_id,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": node,
        "isr_nodes": () if offline else node,
        "offline_replicas": node if offline else (),
    }


def describe_topic(broker: BrokerState, topic: Topic, *, operations: bool) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [describe_partition(broker, partition) for partition in topic.partitions],
        "topic_authorized_operations": TOPIC_OPERATIONS if operations else NOT_ASKED,
    }
