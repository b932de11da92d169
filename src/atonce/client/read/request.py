"""One Fetch of one partition: the request in the version that carries what must be said, and its part of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

MAX_WAIT_MS = 500
BY_NAME = 12
"""The last version in which a topic goes by its name."""
BY_ID = 13
FETCHED_EPOCH_SINCE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a leader."""

    topic: str
    partition: int
    position: int
    topic_id: str | None = None
    fetched_epoch: int = -1
    """Leader epoch of the record before the position: the leader says if its own log was written otherwise."""
    leader_epoch: int = -1
    """Answer only as the leader of this epoch."""
    isolation_level: int = 1
    max_bytes: int
    max_wait_ms: int = MAX_WAIT_MS

    def request(self, broker_version: int) -> Any:
        """`broker_version` is the newest Fetch that this broker knows. What it cannot be told is left out."""
        kind = FetchRequest.FetchTopic
        by_id = self.topic_id is not None and broker_version >= BY_ID
        partition = kind.FetchPartition(
            partition=self.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.position,
            last_fetched_epoch=self.fetched_epoch if broker_version >= FETCHED_EPOCH_SINCE else -1,
            log_start_offset=-1,
            partition_max_bytes=self.max_bytes,
        )
        name = {"topic_id": UUID(self.topic_id)} if by_id else {"topic": self.topic}
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[kind(partitions=[partition], **name)],
            forgotten_topics_data=[],
            rack_id="",
            min_version=BY_ID if by_id else 4,
            max_version=BY_ID if by_id else BY_NAME,
        )


def answered(answer: Any, partition: int) -> Any | None:
    """The partition's part of an answer to a question about one partition; None when it is not in it."""
    for topic in answer.responses or ():
        for entry in topic.partitions or ():
            if entry.partition_index == partition:
                return entry
    return None
