"""The broker as the auditor uses it: topics, records, offsets, groups and transactions."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atonce.errors import AtOnceError
from atonce.verify.wire.asker import VERSIONS, Asker, ClusterError
from atonce.verify.wire.batches import encode as encode_batch
from atonce.verify.wire.schemas import nested

UNCOMMITTED, COMMITTED = 0, 1
EARLIEST, LATEST = -2, -1
_DUPLICATE_SEQUENCE = 46


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition's part of a fetch answer."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset)"""
    records: bytes


def milliseconds(value: int) -> Any:
    return datetime.timedelta(milliseconds=value)


class Cluster(Asker):
    """Topics, records and groups. Not for use by several threads at once: `clone` gives another."""

    def clone(self) -> Cluster:
        return Cluster(self.servers)

    # Topics ---------------------------------------------------------------------------------------------------------

    def refresh(self, topic: str) -> dict[int, int]:
        """Partition → leader, from fresh metadata."""
        asked = nested("metadata", VERSIONS["metadata"], "MetadataRequestTopic")(name=topic, topic_id=None)
        answer = self.ask(
            "metadata", topics=(asked,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        self._nodes = {int(node.node_id): (str(node.host), int(node.port)) for node in answer.brokers}
        found = answer.topics[0]
        _check("metadata", found.error_code, topic)
        leaders = {int(part.partition_index): int(part.leader_id) for part in found.partitions}
        if any(leader not in self._nodes for leader in leaders.values()):
            raise ClusterError(f"a partition of {topic} has no leader yet")
        self._leaders[topic] = leaders
        return leaders

    def forget(self, topic: str) -> None:
        """Its leaders have moved: ask again."""
        self._leaders.pop(topic, None)

    def partitions(self, topic: str) -> list[int]:
        return sorted(self._leaders.get(topic) or self.refresh(topic))

    def leader(self, topic: str, partition: int) -> int:
        return (self._leaders.get(topic) or self.refresh(topic))[partition]

    def node_count(self) -> int:
        answer = self.ask(
            "metadata", topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        return len(answer.brokers)

    def at(self, topic: str, partition: int) -> tuple[str, int]:
        """The address of its leader."""
        return self._at(topic, partition)

    def _at(self, topic: str, partition: int) -> tuple[str, int]:
        leader = self.leader(topic, partition)
        if leader not in self._nodes:  # it has left the cluster since we learned of it
            leader = self.refresh(topic)[partition]
        return self._nodes[leader]

    def create_topic(
        self, topic: str, partitions: int, replicas: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        v = VERSIONS["create_topics"]
        config_type = nested("create_topics", v, "CreatableTopicConfig")
        wanted = nested("create_topics", v, "CreatableTopic")(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=tuple(config_type(name=key, value=value) for key, value in (configs or {}).items()),
        )

        def create() -> None:
            answer = self.ask("create_topics", topics=(wanted,), timeout=milliseconds(10000), validate_only=False)
            if int(answer.topics[0].error_code) != 36:  # TOPIC_ALREADY_EXISTS: our own earlier try
                _check("create_topics", answer.topics[0].error_code, topic)
            self.refresh(topic)
            self.offsets(topic)  # answers only when every leader has taken up its partition

        self.patiently(create)

    def delete_topic(self, topic: str, *, wait: bool = False) -> None:
        """`wait`: until it is gone, so that one of the same name is another one."""
        wanted = nested("delete_topics", VERSIONS["delete_topics"], "DeleteTopicState")(name=topic, topic_id=None)
        with contextlib.suppress(OSError, AtOnceError):
            self.ask("delete_topics", topics=(wanted,), timeout=milliseconds(10000))
        self._leaders.pop(topic, None)
        if wait:
            self.patiently(lambda: self._require_gone(topic))

    def _require_gone(self, topic: str) -> None:
        try:
            self.refresh(topic)
        except ClusterError as error:
            if "(3)" in str(error):  # UNKNOWN_TOPIC_OR_PARTITION
                return
            raise
        raise ClusterError(f"topic {topic} is still there")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """What retention does: everything below these offsets is gone."""
        v = VERSIONS["delete_records"]
        part_type, topic_type = (
            nested("delete_records", v, "DeleteRecordsPartition"),
            nested("delete_records", v, "DeleteRecordsTopic"),
        )
        for partition, offset in before.items():
            wanted = topic_type(name=topic, partitions=(part_type(partition_index=partition, offset=offset),))
            answer = self.ask(
                "delete_records", self._at(topic, partition), topics=(wanted,), timeout=milliseconds(10000)
            )
            _check("delete_records", answer.topics[0].partitions[0].error_code, topic)

    # Records --------------------------------------------------------------------------------------------------------

    def new_producer(self) -> tuple[int, int]:
        """A producer id and epoch, without a transactional id."""
        answer = self.ask(
            "init_producer_id",
            transactional_id=None,
            transaction_timeout=milliseconds(60000),
            producer_id=-1,
            producer_epoch=-1,
        )
        _check("init_producer_id", answer.error_code, "a new producer")
        return int(answer.producer_id), int(answer.producer_epoch)

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: tuple[int, int],
        sequence: int,
    ) -> None:
        """Appends one batch, acks=all. Sent again with the same sequence it stands in the log once."""
        v = VERSIONS["produce"]
        batch = encode_batch(
            records, int(time.time() * 1000), producer_id=producer[0], epoch=producer[1], sequence=sequence
        )
        part = nested("produce", v, "PartitionProduceData")(index=partition, records=batch)
        data = nested("produce", v, "TopicProduceData")(name=topic, partition_data=(part,))
        answer = self.ask(
            "produce",
            self._at(topic, partition),
            transactional_id=None,
            acks=-1,
            timeout=milliseconds(10000),
            topic_data=(data,),
        )
        code = answer.responses[0].partition_responses[0].error_code
        if int(code) != _DUPLICATE_SEQUENCE:
            _check("produce", code, f"{topic}/{partition}")

    def offsets(self, topic: str, timestamp: int = LATEST, isolation: int = UNCOMMITTED) -> dict[int, int]:
        """Partition → offset. LATEST under COMMITTED is the last stable offset."""
        v = VERSIONS["list_offsets"]
        part_type, topic_type = (
            nested("list_offsets", v, "ListOffsetsPartition"),
            nested("list_offsets", v, "ListOffsetsTopic"),
        )
        found = {}
        for partition in self.partitions(topic):
            part = part_type(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
            answer = self.ask(
                "list_offsets",
                self._at(topic, partition),
                replica_id=-1,
                isolation_level=isolation,
                topics=(topic_type(name=topic, partitions=(part,)),),
            )
            done = answer.topics[0].partitions[0]
            _check("list_offsets", done.error_code, f"{topic}/{partition}")
            found[partition] = int(done.offset)
        return found

    def fetch(self, topic: str, positions: Mapping[int, int], isolation: int, wait_ms: int = 0) -> list[Fetched]:
        """What each partition holds from its position on; one request per leader."""
        by_leader: dict[tuple[str, int], list[int]] = {}
        for partition in positions:
            by_leader.setdefault(self._at(topic, partition), []).append(partition)
        v = VERSIONS["fetch"]
        part_type, topic_type = nested("fetch", v, "FetchPartition"), nested("fetch", v, "FetchTopic")
        out = []
        for at, partitions in by_leader.items():
            parts = tuple(
                part_type(partition=p, fetch_offset=positions[p], partition_max_bytes=4 << 20) for p in partitions
            )
            answer = self.ask(
                "fetch",
                at,
                replica_id=-1,
                max_wait=milliseconds(wait_ms),
                min_bytes=1,
                max_bytes=32 << 20,
                isolation_level=isolation,
                session_id=0,
                session_epoch=-1,
                topics=(topic_type(topic=topic, partitions=parts),),
                forgotten_topics_data=(),
                rack_id="",
            )
            _check("fetch", answer.error_code, topic)
            for part in answer.responses[0].partitions if answer.responses else ():
                aborted = tuple((int(a.producer_id), int(a.first_offset)) for a in part.aborted_transactions or ())
                out.append(
                    Fetched(
                        int(part.partition_index),
                        int(part.error_code),
                        int(part.high_watermark),
                        int(part.last_stable_offset),
                        aborted,
                        bytes(part.records or b""),
                    )
                )
        return out

    # Groups ---------------------------------------------------------------------------------------------------------

    def coordinator(self, key: str, key_type: int = 0) -> tuple[str, int]:
        """0 for a group, 1 for a transactional id."""
        answer = self.ask("find_coordinator", key_type=key_type, coordinator_keys=(key,)).coordinators[0]
        _check("find_coordinator", answer.error_code, key)
        return str(answer.host), int(answer.port)

    def committed(self, group: str) -> dict[str, dict[int, tuple[int, str]]]:
        """Topic → partition → (offset, metadata)."""
        asked = nested("offset_fetch", VERSIONS["offset_fetch"], "OffsetFetchRequestGroup")(group_id=group, topics=None)
        answer = self.ask("offset_fetch", self.coordinator(group), groups=(asked,), require_stable=False).groups[0]
        _check("offset_fetch", answer.error_code, group)
        return {
            str(topic.name): {
                int(p.partition_index): (int(p.committed_offset), str(p.metadata or "")) for p in topic.partitions
            }
            for topic in answer.topics
        }

    def commit(self, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        """What a tool does that resets a stopped group."""
        v = VERSIONS["offset_commit"]
        part_type = nested("offset_commit", v, "OffsetCommitRequestPartition")
        parts = tuple(
            part_type(partition_index=p, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=words)
            for p, (offset, words) in offsets.items()
        )
        answer = self.ask(
            "offset_commit",
            self.coordinator(group),
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(nested("offset_commit", v, "OffsetCommitRequestTopic")(name=topic, partitions=parts),),
        )
        for part in answer.topics[0].partitions:
            _check("offset_commit", part.error_code, group)

    def dismiss_members(self, group: str, members: Sequence[str]) -> None:
        """Tells the coordinator that killed members are gone; it would find out after their session time-out."""
        member_type = nested("leave_group", VERSIONS["leave_group"], "MemberIdentity")
        leaving = tuple(member_type(member_id=m, group_instance_id=None, reason="killed") for m in members)
        with contextlib.suppress(OSError, AtOnceError):
            self.ask("leave_group", self.coordinator(group), group_id=group, members=leaving)

    def delete_group(self, group: str) -> None:
        with contextlib.suppress(OSError, AtOnceError):
            self.ask("delete_groups", self.coordinator(group), groups_names=(group,))

    def transaction_state(self, transactional_id: str) -> str:
        """Empty, Ongoing, PrepareCommit, CompleteCommit … or "" when the broker does not know it."""
        answer = self.ask(
            "describe_transactions", self.coordinator(transactional_id, 1), transactional_ids=(transactional_id,)
        ).transaction_states[0]
        return "" if int(answer.error_code) else str(answer.transaction_state)


def _check(what: str, code: Any, where: str) -> None:
    if int(code) != 0:
        raise ClusterError(f"{what} on {where}: the broker answered {getattr(code, 'name', code)} ({int(code)})")
