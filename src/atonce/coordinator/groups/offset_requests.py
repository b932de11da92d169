"""What is asked of committed offsets: commit, commit in a transaction, fetch, delete, expire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import ProducerIdAndEpoch, TopicPartition
from atonce.coordinator.groups.classic.group import ClassicGroup
from atonce.coordinator.groups.config import GroupConfig
from atonce.coordinator.groups.offsets import Offsets
from atonce.coordinator.groups.records import CommittedOffset, OffsetRecord
from atonce.coordinator.groups.states import ClassicState
from atonce.coordinator.turn import Turn

NO_OFFSET = CommittedOffset(-1, -1, "", -1)


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    error: ErrorCode
    committed: CommittedOffset = NO_OFFSET


def classic_commit_error(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
) -> ErrorCode:
    """May this member of a classic group, or this stranger, commit offsets now?"""
    if group.state is ClassicState.DEAD:
        return ErrorCode.coordinator_not_available
    if generation < 0 and group.state is ClassicState.EMPTY:
        return ErrorCode.none  # an administrator, or a consumer that assigns itself its partitions
    if generation >= 0 or member_id or instance_id is not None:
        error = group.member_error(member_id, instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != group.generation:
            return ErrorCode.illegal_generation
    elif not transactional:
        return ErrorCode.unknown_member_id
    if not transactional and group.state is ClassicState.COMPLETING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


class OffsetRequests:
    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.offsets = Offsets()

    def commit(
        self, turn: Turn, group_id: str, wanted: Iterable[OffsetToCommit], *, retention_ms: int = -1
    ) -> dict[TopicPartition, ErrorCode]:
        """The caller has checked that the group lets this happen."""
        answers: dict[TopicPartition, ErrorCode] = {}
        expire_ms = None if retention_ms < 0 else turn.now_ms + retention_ms
        for offset in wanted:
            metadata = offset.metadata or ""
            if len(metadata) > self._config.offset_metadata_max_bytes:
                answers[offset.partition] = ErrorCode.offset_metadata_too_large
                continue
            committed = CommittedOffset(offset.offset, offset.leader_epoch, metadata, turn.now_ms, expire_ms)
            turn.records.append(OffsetRecord(group_id, *offset.partition, committed))
            answers[offset.partition] = ErrorCode.none
        return answers

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """None asks for all. A partition without an offset is answered with -1, which is no error."""
        wanted = self.offsets.of_group(group_id) if partitions is None else partitions
        answers: dict[TopicPartition, FetchedOffset] = {}
        for partition in wanted:
            if require_stable and self.offsets.is_pending(group_id, partition):
                answers[partition] = FetchedOffset(ErrorCode.unstable_offset_commit)
            else:
                committed = self.offsets.get(group_id, partition)
                answers[partition] = FetchedOffset(ErrorCode.none, committed or NO_OFFSET)
        return answers

    def delete(
        self, turn: Turn, group_id: str, partitions: Sequence[TopicPartition], subscribed: frozenset[str]
    ) -> dict[TopicPartition, ErrorCode]:
        answers: dict[TopicPartition, ErrorCode] = {}
        for partition in partitions:
            if partition.topic in subscribed:
                answers[partition] = ErrorCode.group_subscribed_to_topic
                continue
            answers[partition] = ErrorCode.none
            if self.offsets.get(group_id, partition) is not None or self.offsets.is_pending(group_id, partition):
                turn.records.append(OffsetRecord(group_id, *partition, None))
        return answers

    def delete_all(self, turn: Turn, group_id: str) -> None:
        pending = self.offsets.pending_of_group(group_id)
        for partition in {**self.offsets.of_group(group_id), **dict.fromkeys(pending)}:
            turn.records.append(OffsetRecord(group_id, *partition, None))

    def delete_topics(self, turn: Turn, topics: frozenset[str]) -> None:
        for group_id in list(self.offsets.groups()):
            for partition in self.offsets.of_group(group_id):
                if partition.topic in topics:
                    turn.records.append(OffsetRecord(group_id, *partition, None))
        for topic in topics:
            for group_id, partition in self.offsets.pending_of_topic(topic):
                if self.offsets.get(group_id, partition) is None:
                    turn.records.append(OffsetRecord(group_id, *partition, None))

    def expire(self, turn: Turn, group_id: str, since_ms: Mapping[TopicPartition, int]) -> bool:
        """Remove offsets whose time is over, counted from `since_ms`; whether none is left afterwards."""
        left = False
        for partition, committed in self.offsets.of_group(group_id).items():
            pending = self.offsets.is_pending(group_id, partition)
            if pending or not self._is_over(turn.now_ms, committed, since_ms.get(partition)):
                left = True
            else:
                turn.records.append(OffsetRecord(group_id, *partition, None))
        return not left and not self.offsets.has_pending(group_id)

    def _is_over(self, now_ms: int, committed: CommittedOffset, since_ms: int | None) -> bool:
        if since_ms is None:
            return False
        if committed.expire_ms is not None:
            return now_ms >= committed.expire_ms
        return now_ms - since_ms >= self._config.offsets_retention_minutes * 60_000

    def apply(self, record: OffsetRecord, producer: ProducerIdAndEpoch | None) -> None:
        self.offsets.apply(record, producer)


def classic_expiry(group: ClassicGroup, offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
    """From when on each offset of a classic group ages; those not named do not."""
    if group.protocol_type is None:
        return {p: o.commit_ms for p, o in offsets.items()}
    if group.state is ClassicState.EMPTY:
        # From when the last member left, or from the commit if that is not known.
        emptied = group.state_ms
        return {p: emptied if emptied is not None and emptied >= 0 else o.commit_ms for p, o in offsets.items()}
    subscribed = group.subscribed_topics()
    if group.state is ClassicState.STABLE and subscribed is not None:
        return {p: o.commit_ms for p, o in offsets.items() if p.topic not in subscribed}
    return {}
