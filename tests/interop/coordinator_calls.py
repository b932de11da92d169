"""What a producer or a group member sends, one call each; answers are Kafka's error codes and values."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from atonce.records.record import build_batch
from tests.interop.raw import Raw

T = TypeVar("T")


def fresh(name: str) -> str:
    """A name nobody has used on this broker: tests share it."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def eventually(ask: Callable[[], T], good: Callable[[T], bool], timeout_s: float = 20.0) -> T:
    """Ask until the answer is good; the last answer is returned in any case, for the assertion to show."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = ask()
        if good(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


# Answers of a broker that is still finding itself: a real client waits and asks again.
PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    }
)


class Producer(NamedTuple):
    producer_id: int
    epoch: int


class Fetched(NamedTuple):
    error: ErrorCode
    offset: int
    metadata: str | None
    leader_epoch: int


class Calls(Raw):
    def topic(self, partitions: int = 1) -> str:
        """A new topic whose leaders answer."""
        name = fresh("topic")
        answer = self.call(
            19,
            7,
            topics=[
                {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
            ],
            timeout=10_000,
            validate_only=False,
        )
        assert answer.topics[0].error_code is ErrorCode.none, answer
        self.leaders_answer(name, partitions)
        return name

    def leaders_answer(self, topic: str, partitions: int = 1) -> None:
        """Wait for them: Apache Kafka answers CreateTopics a moment before its brokers know the topic."""
        wanted = [{"partition_index": p, "current_leader_epoch": -1, "timestamp": -1} for p in range(partitions)]
        asked = [{"name": topic, "partitions": wanted}]
        found = eventually(
            lambda: self.call(2, 7, replica_id=-1, isolation_level=0, topics=asked).topics[0].partitions,
            lambda found: all(p.error_code is ErrorCode.none for p in found),
        )
        assert all(p.error_code is ErrorCode.none for p in found), found

    def topic_id(self, topic: str) -> uuid.UUID:
        answer = self.call(
            3,
            12,
            topics=[{"topic_id": None, "name": topic}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        found: uuid.UUID = answer.topics[0].topic_id
        return found

    def coordinator(self, key: str, key_type: int) -> None:
        """Wait until the coordinator answers: the first request creates its internal topic."""
        eventually(
            lambda: self.call(10, 4, key_type=key_type, coordinator_keys=[key]).coordinators[0].error_code,
            lambda error: error is ErrorCode.none,
        )

    # -- transactions -------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        expected: Producer | None = None,
        version: int = 5,
    ) -> tuple[ErrorCode, Producer]:
        fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms}
        if version >= 3:
            producer_id, epoch = expected or (-1, -1)
            fields |= {"producer_id": producer_id, "producer_epoch": epoch}
        answer = eventually(lambda: self.call(22, version, **fields), lambda a: a.error_code not in PASSING)
        return answer.error_code, Producer(answer.producer_id, answer.producer_epoch)

    def start_producer(self, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
        self.coordinator(transactional_id, 1)
        ready = lambda answer: answer[0] is not ErrorCode.concurrent_transactions  # noqa: E731
        error, producer = eventually(lambda: self.init(transactional_id, timeout_ms=timeout_ms), ready)
        assert error is ErrorCode.none
        return producer

    def add_partition(self, transactional_id: str, producer: Producer, topic: str, partition: int = 0) -> ErrorCode:
        answer = self.call(
            24,
            3,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
        )
        error: ErrorCode = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return error

    def produce(
        self,
        transactional_id: str | None,
        producer: Producer,
        topic: str,
        *,
        sequence: int,
        version: int = 12,
        value: bytes = b"v",
    ) -> ErrorCode:
        batch = build_batch(
            [(None, value)],
            timestamp_ms=int(time.time() * 1000),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        answer = self.call(
            0,
            version,
            transactional_id=transactional_id,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
        )
        error: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return error

    def produce_when_ready(
        self, transactional_id: str, producer: Producer, topic: str, *, sequence: int, version: int = 12
    ) -> ErrorCode:
        """As clients do: the last transaction may still be completing."""
        busy = PASSING | {ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas}
        return eventually(
            lambda: self.produce(transactional_id, producer, topic, sequence=sequence, version=version),
            lambda error: error not in busy,
        )

    def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, version: int = 5
    ) -> tuple[ErrorCode, Producer]:
        answer = self.call(
            26,
            version,
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        if version < 5:
            return answer.error_code, Producer(-1, -1)
        return answer.error_code, Producer(answer.producer_id, answer.producer_epoch)

    def end_when_ready(
        self, transactional_id: str, producer: Producer, *, commit: bool, version: int = 5
    ) -> tuple[ErrorCode, Producer]:
        return eventually(
            lambda: self.end(transactional_id, producer, commit=commit, version=version),
            lambda answer: answer[0] is not ErrorCode.concurrent_transactions,
        )

    def transaction_state(self, transactional_id: str) -> Any:
        return self.call(65, 0, transactional_ids=[transactional_id]).transaction_states[0]

    def wait_for_state(self, transactional_id: str, state: str, timeout_s: float = 20.0) -> Any:
        found = eventually(
            lambda: self.transaction_state(transactional_id), lambda s: s.transaction_state == state, timeout_s
        )
        assert found.transaction_state == state, found
        return found

    def commit_offset_in_transaction(
        self,
        transactional_id: str,
        producer: Producer,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = 5,
        metadata: str = "",
        generation: int = -1,
        member_id: str = "",
    ) -> ErrorCode:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        passing = PASSING | {ErrorCode.concurrent_transactions}
        answer = eventually(
            lambda: self.call(
                28,
                version,
                transactional_id=transactional_id,
                group_id=group,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=None,
                topics=[{"name": topic, "partitions": [partition]}],
            ),
            lambda a: a.topics[0].partitions[0].error_code not in passing,
        )
        error: ErrorCode = answer.topics[0].partitions[0].error_code
        return error

    # -- offsets ------------------------------------------------------------------------------------------------

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        metadata: str = "",
        leader_epoch: int = -1,
        version: int = 9,
        partition: int = 0,
    ) -> ErrorCode:
        item = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": metadata,
        }
        generation_field = "generation_id_or_member_epoch"

        def commit() -> ErrorCode:
            answer = self.call(
                8,
                version,
                group_id=group,
                **{generation_field: generation},
                member_id=member_id,
                group_instance_id=instance_id,
                topics=[{"name": topic, "partitions": [item]}],
            )
            error: ErrorCode = answer.topics[0].partitions[0].error_code
            return error

        return eventually(commit, lambda error: error not in PASSING - {ErrorCode.unknown_topic_or_partition})

    def fetch_offset(self, group: str, topic: str, *, stable: bool = False, partition: int = 0) -> Fetched:
        answer = self.call(
            9,
            9,
            groups=[
                {
                    "group_id": group,
                    "member_id": None,
                    "member_epoch": -1,
                    "topics": [{"name": topic, "partition_indexes": [partition]}],
                }
            ],
            require_stable=stable,
        )
        group_answer = answer.groups[0]
        if group_answer.error_code is not ErrorCode.none:
            return Fetched(group_answer.error_code, -1, None, -1)
        found = group_answer.topics[0].partitions[0]
        return Fetched(found.error_code, found.committed_offset, found.metadata, found.committed_leader_epoch)
