"""Dead letters on their way: the driver writes them itself, into the transaction that the batch's tasks wrote into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from atonce.client.cluster import Cluster
from atonce.client.produce import Sender, idempotent_producer
from atonce.connectors.kafka.read.letters import kept_letters
from atonce.connectors.kafka.topic import Kafka
from atonce.connectors.kafka.write.letters import records
from atonce.connectors.kafka.write.send import SendTask
from atonce.delivery.contract import Batch
from atonce.delivery.letters import Kept, Letter, Place, letters, taken_back
from atonce.delivery.progress import Positions
from atonce.errors import UndeliverableRow, UsageError
from atonce.records.encode import encode
from atonce.records.partitioner import assign


@dataclass(frozen=True, slots=True)
class LettersOut:
    cluster: Cluster
    kafka: Kafka
    pipeline: str
    limit: int
    """Most bytes of a record that the output topics take."""

    def send(
        self, task: SendTask, partitions: int, kept: Iterable[list[Kept]], admit: Callable[[str, int], None] | None
    ) -> int:
        """Acknowledged when this returns; in a transaction visible with it. How many there were."""
        topic = self.kafka.dead_letter
        if topic is None:
            raise UsageError("dead letters have no topic: dead_letter is not set")
        sender, granted, count = self._sender(task), set[int](), 0
        try:
            for some in kept:
                rows = records(some, self.pipeline, self.kafka.topic or "", self.limit)
                chosen = assign(rows.column("key"), partitions)
                for partition in np.unique(chosen).tolist() if admit is not None else ():
                    if admit is not None and partition not in granted:
                        admit(topic, partition)
                        granted.add(partition)
                for partition, _, blob in encode(
                    rows, chosen, partitions, compression=self.kafka.compression, max_batch_bytes=self.limit
                ):
                    sender.send(topic, partition, blob)
                count += len(some)
            sender.flush()
        finally:
            sender.close()
        return count

    def delivered_again(self, batch: Batch, source: object) -> list[Kept]:
        """Letters that wait for records which are delivered again from this batch on, marked as taken back."""
        begin = batch.again_from or {}
        if self.kafka.dead_letter is None:
            return []
        kept = kept_letters(self.cluster, self.kafka.dead_letter, self.pipeline, self.kafka.topic or "")
        waiting = {(k.letter.place, k.letter.index): k for k in kept if k.replayed_at is None and _is_in(k, begin)}
        now = datetime.now(UTC)
        back = taken_back([each.letter for each in waiting.values()], source)
        return [replace(waiting[each.place, each.index], replayed_at=now) for each in back]

    def _sender(self, task: SendTask) -> Sender:
        if task.mode == "transaction":
            return Sender(
                self.cluster,
                transactional_id=task.transactional_id,
                producer_id=task.producer_id,
                epoch=task.epoch,
                protocol=task.protocol,
            )
        producer_id, epoch = idempotent_producer(self.cluster)
        return Sender(self.cluster, producer_id=producer_id, epoch=epoch)


def put_aside(
    batch: Batch, found: Sequence[Mapping[str, Any]], source: object, again: Sequence[Kept] = ()
) -> Iterator[list[Kept]]:
    """Letters of a batch as they are kept. `again`: those that it replays; the ones that do not fail are done."""
    before, failed, now = {_key(each.letter): each for each in again}, set[tuple[Place, int]](), datetime.now(UTC)
    for some in letters(found, batch.plan, source):
        batch.letters(some)
        failed.update(_key(each) for each in some)
        tried = [before[_key(each)].attempts + 1 if _key(each) in before else 1 for each in some]
        yield [Kept(letter=each, attempts=attempts) for each, attempts in zip(some, tried, strict=True)]
    if done := [replace(each, replayed_at=now) for key, each in before.items() if key not in failed]:
        yield done


def _key(letter: Letter) -> tuple[Place, int]:
    return letter.place, letter.index


def _is_in(kept: Kept, begin: Positions) -> bool:
    topic, partition, offset = kept.letter.place
    return offset >= begin.get(f"{topic}/{partition}", offset + 1)


def unreadable(told: Mapping[str, Any], where: str) -> UndeliverableRow:
    error = UndeliverableRow(
        f"a record cannot be read: {told['reason']}. It is at topic {told['topic']}, partition {told['partition']}, "
        f"offset {told['offset']}. Nothing of its batch was delivered to {where}. Next: repair it, or set "
        "on_error: dead-letter and a topic for dead_letter to put such records aside."
    )
    error.located = True
    return error
