"""Offsets: where a partition begins and ends, and how far a group has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)

from atonce.client.answers import left_out, only
from atonce.client.cluster import DEFAULT_TIMEOUT_MS, Cluster
from atonce.client.errors import LEADER_MOVED, Code, ConnectionLost, TryAgain, error_for, is_retriable, raise_for
from atonce.client.retry import retry
from atonce.errors import AtOnceError, UsageError

LATEST = -1
"""As a wanted position: after the last record that a reader of this isolation may see."""
EARLIEST = -2
"""As a wanted position: the first record that is still there."""
EARLIEST_LOCAL = -4
"""As a wanted position: the first record on the leader's own disk; what is older lies in remote storage."""
EARLIEST_LOCAL_SINCE = 8
ISOLATIONS = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        topic, _, partition = text.rpartition("/")
        return cls(topic, int(partition))


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
    found = listed(cluster, wanted, isolation, timeout_ms=timeout_ms)
    return {tp: offset for tp, (offset, _) in found.items()}


def listed(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: str = "read_committed",
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[TopicPartition, tuple[int, int]]:
    """As `list_offsets`, with a leader epoch beside it: for LATEST the leader's own, else the record's; -1 unknown."""
    level = isolation_level(isolation)

    def request(partitions: list[TopicPartition]) -> Any:
        return list_request({tp: wanted[tp] for tp in partitions}, level)

    return _ask_leaders(cluster, wanted, request, _listed_entries, "listing offsets of", timeout_ms)


def earliest_local(cluster: Cluster, tp: TopicPartition, leader_epoch: int) -> int | None:
    """The first offset on the leader's own disk, if it still leads in this epoch (`TryAgain` if not). One attempt.

    None from brokers that do not know the question (below 3.6): what they keep elsewhere cannot be told.
    """
    if cluster.max_version(ListOffsetsRequest) < EARLIEST_LOCAL_SINCE:
        return None
    request = list_request({tp: EARLIEST_LOCAL}, 0, leader_epoch=leader_epoch, min_version=EARLIEST_LOCAL_SINCE)
    answer = cluster.call(request, cluster.leader(tp.topic, tp.partition))
    what = f"asking where the local log of {tp} begins"
    for found, code, (offset, _) in _listed_entries(answer):
        if found == tp:
            if code == Code.UNSUPPORTED_VERSION:
                return None
            raise_for(code, what)
            return offset
    raise left_out(what)


def epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """Where each leader epoch ends in the leader's log now: (epoch, end offset).

    The epoch is the one asked for or the largest below it that the leader knows; (-1, -1): it knows none of them.
    """
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def request(partitions: list[TopicPartition]) -> Any:
        topics = [
            kind(
                topic=topic,
                partitions=[
                    kind.OffsetForLeaderPartition(
                        partition=tp.partition, current_leader_epoch=-1, leader_epoch=epochs[tp]
                    )
                    for tp in members
                ],
            )
            for topic, members in by_topic(partitions).items()
        ]
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics, min_version=3)

    return _ask_leaders(cluster, epochs, request, _epoch_entries, "asking for the leader epochs of")


Answer = tuple[TopicPartition, int, tuple[int, int]]
"""A partition, its error code, and the two numbers that were asked for."""


def _listed_entries(answer: Any) -> Iterator[Answer]:
    for topic in answer.topics:
        for entry in topic.partitions:
            numbers = int(entry.offset), int(entry.leader_epoch)
            yield TopicPartition(topic.name, entry.partition_index), entry.error_code, numbers


def _epoch_entries(answer: Any) -> Iterator[Answer]:
    for topic in answer.topics:
        for entry in topic.partitions:
            numbers = int(entry.leader_epoch), int(entry.end_offset)
            yield TopicPartition(topic.topic, entry.partition), entry.error_code, numbers


def _ask_leaders(
    cluster: Cluster,
    wanted: Iterable[TopicPartition],
    request: Callable[[list[TopicPartition]], Any],
    read: Callable[[Any], Iterator[Answer]],
    what: str,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[TopicPartition, tuple[int, int]]:
    """One request per leader, until every partition has an answer of its own."""
    partitions, found = list(wanted), dict[TopicPartition, tuple[int, int]]()

    def ask() -> None:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            if tp not in found:
                by_leader[cluster.leader(tp.topic, tp.partition)].append(tp)
        trouble: AtOnceError | None = None
        for leader, members in by_leader.items():
            try:
                answer = cluster.call(request(members), leader, timeout_ms)
            except ConnectionLost as error:
                for tp in members:
                    cluster.forget_topic(tp.topic)
                trouble = error
                continue
            trouble = _take(cluster, read(answer), found, what) or trouble
            silent = next((tp for tp in members if tp not in found), None)
            if silent is not None and trouble is None:
                trouble = left_out(f"{what} {silent}")
        if trouble is not None:
            raise trouble

    retry(ask, limit_ms=timeout_ms)
    return {tp: found[tp] for tp in partitions}


def _take(
    cluster: Cluster, answers: Iterator[Answer], found: dict[TopicPartition, tuple[int, int]], what: str
) -> AtOnceError | None:
    trouble = None
    for tp, code, numbers in answers:
        if code == Code.NONE:
            found[tp] = numbers
            continue
        error = error_for(code, f"{what} {tp}")
        if code in LEADER_MOVED:
            cluster.forget_topic(tp.topic)
        elif not is_retriable(error):
            raise error
        trouble = error if is_retriable(error) else TryAgain(str(error))
    return trouble


def list_request(
    wanted: Mapping[TopicPartition, int], level: int, *, leader_epoch: int = -1, min_version: int = 2
) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        kind(
            name=topic,
            partitions=[
                kind.ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=leader_epoch, timestamp=wanted[tp]
                )
                for tp in members
            ],
        )
        for topic, members in by_topic(wanted).items()
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=level, topics=topics, timeout_ms=30_000, min_version=min_version
    )


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
    asked = None if partitions is None else set(partitions)
    if asked is not None:
        wanted = [
            kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[tp.partition for tp in members])
            for topic, members in by_topic(asked).items()
        ]

    def ask() -> dict[TopicPartition, Committed]:
        request = OffsetFetchRequest(
            groups=[kind(group_id=group, member_id=None, member_epoch=-1, topics=wanted)],
            require_stable=require_stable,
            min_version=8,
            max_version=9,  # from 10 on topics go by id
        )
        what = f"reading the offsets of group {group!r}"
        answer = only(cluster.ask_coordinator(request, group, timeout_ms=timeout_ms).groups, what)
        raise_for(answer.error_code, what)
        found, answered = {}, set()
        for topic in answer.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                raise_for(entry.error_code, f"reading the offset of group {group!r} for {tp}")
                answered.add(tp)
                if entry.committed_offset >= 0:
                    found[tp] = Committed(
                        offset=int(entry.committed_offset),
                        leader_epoch=int(entry.committed_leader_epoch),
                        metadata=entry.metadata or "",
                    )
        # "No commit" is said with -1. A partition that is not spoken of may well have one.
        for tp in sorted((asked or set()) - answered):
            raise left_out(f"{what} for {tp}")
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
        raise_for_partitions(answer, offsets, f"committing offsets of group {group!r}")

    retry(send, limit_ms=timeout_ms, on_retry=lambda error: cluster.forget_coordinator(group, "group", error))


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Let a group forget where it stood on these partitions. Refused while somebody consumes them by that name."""
    kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
    wanted = list(partitions)
    topics = [
        kind(
            name=topic,
            partitions=[kind.OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in members],
        )
        for topic, members in by_topic(wanted).items()
    ]

    def send() -> None:
        answer = cluster.ask_coordinator(OffsetDeleteRequest(group_id=group, topics=topics), group)
        what = f"deleting offsets of group {group!r}"
        raise_for(answer.error_code, what)
        raise_for_partitions(answer, wanted, what)

    if wanted:
        retry(
            send, limit_ms=DEFAULT_TIMEOUT_MS, on_retry=lambda error: cluster.forget_coordinator(group, "group", error)
        )


def raise_for_partitions(answer: Any, sent: Iterable[TopicPartition], what: str) -> None:
    """The first error of an (Txn)OffsetCommit answer, with its partition; silence about one that was sent is none."""
    answered = set()
    for topic in answer.topics:
        for entry in topic.partitions:
            raise_for(entry.error_code, f"{what} for {topic.name}/{entry.partition_index}")
            answered.add(TopicPartition(topic.name, entry.partition_index))
    for tp in sorted(set(sent) - answered):
        raise left_out(f"{what} for {tp}")


def committed_entry(kind: Any, tp: TopicPartition, value: Committed) -> Any:
    return kind(
        partition_index=tp.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        committed_metadata=value.metadata,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in sorted(partitions):
        grouped[tp.topic].append(tp)
    return grouped
