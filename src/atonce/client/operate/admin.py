"""What an operator asks a cluster: its brokers, topics, settings and groups. Transactions are in `hanging`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    ListGroupsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from atonce.client.answers import only
from atonce.client.cluster import Cluster
from atonce.client.errors import TRY_AGAIN, BrokerRefused, Code, TopicMissing, TryAgain, raise_for
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, committed, list_offsets
from atonce.client.retry import retry
from atonce.errors import AtOnceError, UsageError

TIMEOUT_MS = 30_000
_BROKER, _TOPIC = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as its leader sees it. `stable` is where a read_committed reader stops."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    earliest: int
    latest: int
    stable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    name: str
    partitions: int
    replication: int
    internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    group: str
    state: str
    type: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind on one partition. `metadata` is what the committer noted beside the offset."""

    topic: str
    partition: int
    committed: int
    latest: int
    metadata: str

    @property
    def lag(self) -> int:
        return max(0, self.latest - self.committed)


def brokers(cluster: Cluster) -> list[Broker]:
    def ask() -> Any:
        answer = cluster.call(DescribeClusterRequest(include_cluster_authorized_operations=False))
        raise_for(answer.error_code, "describing the cluster")
        only(answer.brokers, "describing the cluster: its brokers")
        return answer

    answer = retry(ask, limit_ms=TIMEOUT_MS)
    return sorted(
        (Broker(id=each.broker_id, host=each.host, port=each.port) for each in answer.brokers), key=lambda each: each.id
    )


def topics(cluster: Cluster, *, internal: bool = False) -> list[TopicState]:
    found = []
    for topic in _metadata(cluster, None):
        if topic.is_internal and not internal:
            continue
        copies = max((len(partition.replica_nodes) for partition in topic.partitions), default=0)
        found.append(
            TopicState(
                name=topic.name, partitions=len(topic.partitions), replication=copies, internal=bool(topic.is_internal)
            )
        )
    return sorted(found, key=lambda each: each.name)


def describe_topic(cluster: Cluster, name: str) -> list[PartitionState]:
    topic = _described(cluster, name)
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    keys = [TopicPartition(name, each.partition_index) for each in partitions if each.leader_id >= 0]
    earliest = list_offsets(cluster, dict.fromkeys(keys, EARLIEST), "read_uncommitted")
    latest = list_offsets(cluster, dict.fromkeys(keys, LATEST), "read_uncommitted")
    stable = list_offsets(cluster, dict.fromkeys(keys, LATEST), "read_committed")
    found = []
    for each in partitions:
        key = TopicPartition(name, each.partition_index)
        found.append(
            PartitionState(
                topic=name,
                partition=each.partition_index,
                leader=each.leader_id,
                replicas=tuple(each.replica_nodes),
                in_sync=tuple(each.isr_nodes),
                earliest=earliest.get(key, -1),
                latest=latest.get(key, -1),
                stable=stable.get(key, -1),
            )
        )
    return found


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = -1,
    replication: int = -1,
    settings: Mapping[str, str] | None = None,
    *,
    exists_ok: bool = False,
) -> bool:
    """True when it was created, False when it was there and that is fine. -1 leaves a number to the broker."""
    creatable = CreateTopicsRequest.CreatableTopic
    wanted = creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[creatable.CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
    )
    what = f"creating topic {name}"
    result, repeated = _changed(
        lambda: only(
            cluster.call(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False)).topics,
            what,
        ),
        what,
        done=Code.TOPIC_ALREADY_EXISTS,
    )
    if result.error_code != Code.TOPIC_ALREADY_EXISTS or repeated:
        return True
    if exists_ok:
        return False
    raise UsageError(f"topic {name} exists already")


def delete_topic(cluster: Cluster, name: str) -> None:
    wanted = DeleteTopicsRequest.DeleteTopicState(name=name)
    what = f"deleting topic {name}"
    result, repeated = _changed(
        lambda: only(
            cluster.call(DeleteTopicsRequest(topics=[wanted], topic_names=[name], timeout_ms=TIMEOUT_MS)).responses,
            what,
        ),
        what,
        done=Code.UNKNOWN_TOPIC_OR_PARTITION,
    )
    if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION and not repeated:
        raise TopicMissing(f"there is no topic {name} to delete")


def _changed(ask: Callable[[], Any], what: str, *, done: int) -> tuple[Any, bool]:
    """(what was answered, whether an earlier attempt may have been carried out already). `done` is no error here."""
    unanswered = False

    def attempt() -> Any:
        result = ask()
        if result.error_code != done:
            _raise_with_words(result, what)
        return result

    def note(error: AtOnceError) -> None:
        nonlocal unanswered
        refused = isinstance(error, TryAgain) and error.code != Code.NONE
        unanswered = unanswered or not refused

    result = retry(attempt, limit_ms=TIMEOUT_MS, on_retry=note)
    return result, unanswered


def controller_time_ms(cluster: Cluster) -> int | None:
    """The controller's clock, milliseconds since the epoch; None where the cluster does not tell.

    Kafka has no request for the time, but the leader of the metadata quorum stamps its own state when asked.
    """
    topic = DescribeQuorumRequest.TopicData
    wanted = topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])
    try:
        answer = cluster.call(DescribeQuorumRequest(topics=[wanted], min_version=1))
    except AtOnceError:
        return None  # not a KRaft cluster, or an embedded broker
    if answer.error_code != Code.NONE or not answer.topics:
        return None
    if not answer.topics[0].partitions:
        return None
    state = answer.topics[0].partitions[0]
    stamps = [voter.last_caught_up_timestamp for voter in state.current_voters if voter.replica_id == state.leader_id]
    return int(stamps[0]) if stamps and stamps[0] > 0 else None


def broker_settings(cluster: Cluster, broker: int) -> dict[str, str]:
    """Every setting of one broker whose value it tells (secrets are withheld by the broker itself)."""
    return _settings(cluster, _BROKER, str(broker), broker)


def topic_settings(cluster: Cluster, name: str) -> dict[str, str]:
    return _settings(cluster, _TOPIC, name, None)


def groups(cluster: Cluster) -> list[GroupState]:
    """Each broker answers for the groups it coordinates, so all are asked."""
    found: dict[str, GroupState] = {}
    for broker in brokers(cluster):
        for group in _listed_groups(cluster, broker.id):
            found[group.group_id] = GroupState(
                group=group.group_id,
                state=group.group_state or "",
                type=group.group_type or "",
                protocol=group.protocol_type or "",
            )
    return [found[name] for name in sorted(found)]


def group_lag(cluster: Cluster, group: str) -> list[GroupLag]:
    """Per partition with a committed offset, measured to the high watermark as Kafka's own tools do."""
    positions = committed(cluster, group, require_stable=False)
    known = {key: value for key, value in positions.items() if value.offset >= 0}
    present = {name: {p.index for p in topic.partitions} for name, topic in cluster.topics().items()}
    # A topic may have been deleted since; the offset then stays without an end to measure against.
    alive = [key for key in known if key.partition in present.get(key.topic, set())]
    latest = list_offsets(cluster, dict.fromkeys(alive, LATEST), "read_uncommitted")
    return [
        GroupLag(
            topic=key.topic,
            partition=key.partition,
            committed=known[key].offset,
            latest=latest.get(key, known[key].offset),
            metadata=known[key].metadata,
        )
        for key in sorted(known)
    ]


def _listed_groups(cluster: Cluster, node: int) -> list[Any]:
    def ask() -> list[Any]:
        answer = cluster.call(ListGroupsRequest(states_filter=[], types_filter=[]), node=node)
        raise_for(answer.error_code, f"listing groups of broker {node}")
        return list(answer.groups)

    return retry(ask, limit_ms=TIMEOUT_MS)


def _metadata(cluster: Cluster, names: Sequence[str] | None) -> list[Any]:
    def ask() -> list[Any]:
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = cluster.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        raise_for(answer.error_code, "looking up topics")
        if names:
            only(answer.topics, f"looking up topic {names[0]}")
        return list(answer.topics)

    return retry(ask, limit_ms=TIMEOUT_MS)


def _described(cluster: Cluster, name: str) -> Any:
    topic = _metadata(cluster, [name])[0]
    raise_for(topic.error_code, f"describing topic {name}")
    return topic


def _settings(cluster: Cluster, kind: int, name: str, node: int | None) -> dict[str, str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    what = f"reading settings of {name}"

    def ask() -> Any:
        result = only(cluster.call(DescribeConfigsRequest(resources=[resource]), node=node).results, what)
        _raise_with_words(result, what)
        return result

    result = retry(ask, limit_ms=TIMEOUT_MS)
    return {each.name: each.value for each in result.configs if each.value is not None}


def _raise_with_words(result: Any, where: str) -> None:
    """The broker's own words say more than its code, where it sends any; what passes is tried again all the same."""
    words = getattr(result, "error_message", None)
    if result.error_code not in (Code.NONE, *TRY_AGAIN) and words:
        refused = BrokerRefused(f"{where}: the broker answered: {words}")
        refused.code = int(result.error_code)
        raise refused
    raise_for(result.error_code, where)
