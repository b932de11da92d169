"""Offsets: where a partition begins and ends, and how far a group has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest

from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.errors import LEADER_MOVED, ConnectionLost, TryAgain, error_for, is_retriable, raise_for
from atonce.client.retry import retry
from atonce.errors import AtOnceError, UsageError

LATEST = -1
"""As a wanted position: after the last record that a reader of this isolation may see."""
EARLIEST = -2
"""As a wanted position: the first record that is still there."""
ISOLATIONS = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A group's offset of one partition: the next record to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def isolation_level(name: str) -> int:
    try:
        return ISOLATIONS[name]
    except KeyError:
        raise UsageError(f"isolation.level={name!r} is not one of: {', '.join(ISOLATIONS)}") from None


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: str = "read_committed",
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[TopicPartition, int]:
    """Position per partition: EARLIEST, LATEST, or of the first record at or after a timestamp (-1: there is none)."""
    level, found = isolation_level(isolation), dict[TopicPartition, int]()

    def ask() -> None:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for place in wanted:
            if place not in found:
                by_leader[cluster.leader(place.topic, place.partition)].append(place)
        trouble: AtOnceError | None = None
        for leader, places in by_leader.items():
            try:
                answer = cluster.call(_list_request(places, wanted, level), leader, timeout_ms)
            except ConnectionLost as error:
                for place in places:
                    cluster.forget_topic(place.topic)
                trouble = error
                continue
            trouble = _take_listed(cluster, answer, found) or trouble
        if trouble is not None:
            raise trouble

    retry(ask, limit_ms=timeout_ms)
    return found


def _list_request(places: list[TopicPartition], wanted: Mapping[TopicPartition, int], level: int) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        kind(
            name=topic,
            partitions=[
                kind.ListOffsetsPartition(
                    partition_index=place.partition, current_leader_epoch=-1, timestamp=wanted[place]
                )
                for place in members
            ],
        )
        for topic, members in by_topic(places).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics, timeout_ms=30_000, min_version=2)


def _take_listed(cluster: Cluster, answer: Any, found: dict[TopicPartition, int]) -> AtOnceError | None:
    trouble = None
    for topic in answer.topics:
        for entry in topic.partitions:
            place = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code == 0:
                found[place] = int(entry.offset)
                continue
            error = error_for(entry.error_code, f"listing offsets of {place}")
            if entry.error_code in LEADER_MOVED:
                cluster.forget_topic(place.topic)
            elif not is_retriable(error):
                raise error
            trouble = error if is_retriable(error) else TryAgain(str(error))
    return trouble


def committed(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    require_stable: bool = True,
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[TopicPartition, Committed]:
    """What the group has committed; partitions without a commit are left out. None asks for all of them.

    With `require_stable`, an offset whose transaction is still open is waited for instead of being passed over.
    """
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = None
    if partitions is not None:
        wanted = [
            kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[place.partition for place in members])
            for topic, members in by_topic(partitions).items()
        ]

    def ask() -> dict[TopicPartition, Committed]:
        request = OffsetFetchRequest(
            groups=[kind(group_id=group, member_id=None, member_epoch=-1, topics=wanted)],
            require_stable=require_stable,
            min_version=8,
            max_version=9,  # from 10 on topics go by id
        )
        answer = cluster.ask_coordinator(request, group, timeout_ms=timeout_ms).groups[0]
        raise_for(answer.error_code, f"reading the offsets of group {group!r}")
        found = {}
        for topic in answer.topics:
            for entry in topic.partitions:
                place = TopicPartition(topic.name, entry.partition_index)
                raise_for(entry.error_code, f"reading the offset of group {group!r} for {place}")
                if entry.committed_offset >= 0:
                    found[place] = Committed(
                        offset=int(entry.committed_offset),
                        leader_epoch=int(entry.committed_leader_epoch),
                        metadata=entry.metadata or "",
                    )
        return found

    return retry(ask, limit_ms=timeout_ms, on_retry=lambda error: cluster.forget_coordinator(group, "group", error))


def commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> None:
    """A plain commit, outside any transaction and unfenced: for mirrors and for level `none`."""
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    topics = [
        kind(
            name=topic, partitions=[committed_entry(kind.OffsetCommitRequestPartition, p, offsets[p]) for p in members]
        )
        for topic, members in by_topic(offsets).items()
    ]

    def send() -> None:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
            max_version=9,  # from 10 on topics go by id
        )
        answer = cluster.ask_coordinator(request, group, timeout_ms=timeout_ms)
        raise_for_partitions(answer, f"committing offsets of group {group!r}")

    retry(send, limit_ms=timeout_ms, on_retry=lambda error: cluster.forget_coordinator(group, "group", error))


def raise_for_partitions(answer: Any, what: str) -> None:
    """The first error of an (Txn)OffsetCommit answer, with its partition."""
    for topic in answer.topics:
        for entry in topic.partitions:
            raise_for(entry.error_code, f"{what} for {topic.name}/{entry.partition_index}")


def committed_entry(kind: Any, place: TopicPartition, value: Committed) -> Any:
    return kind(
        partition_index=place.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        committed_metadata=value.metadata,
    )


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = defaultdict(list)
    for place in sorted(places):
        grouped[place.topic].append(place)
    return grouped
