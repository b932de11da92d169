"""A small exactly-once application on transaction protocol 2: copies a topic, output and offsets in one transaction.

The mutants of the broker are put to the test with it: it starts in a fraction of a second, speaks the newest protocol
(librdkafka speaks the older one), sends one batch per partition and transaction, and retries as Kafka's clients do.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from atonce.errors import AtOnceError
from atonce.verify.audit.readers import CommittedReader
from atonce.verify.wire import cluster as wire
from atonce.verify.wire.batches import encode
from atonce.verify.wire.cluster import Cluster, milliseconds
from atonce.verify.wire.schemas import nested

wire.VERSIONS.update(produce=12, txn_offset_commit=5, end_txn=5, init_producer_id=4)
PASSING = {3, 5, 6, 7, 14, 15, 16, 19, 51, 56}
"""What a client waits out, among them CONCURRENT_TRANSACTIONS and COORDINATOR_LOAD_IN_PROGRESS."""
PER_BATCH = 20


class Copier:
    def __init__(self, servers: str, source: str, target: str, group: str) -> None:
        self.cluster = Cluster(servers)
        self.source, self.target, self.group = source, target, group
        self.producer_id = self.epoch = -1

    def retried(self, ask: Any, code_of: Any) -> Any:
        """The same request until it is answered: a lost answer is asked for again with the same sequence."""
        while True:
            try:
                answer = ask()
            except (OSError, AtOnceError):
                self.cluster.close()
                time.sleep(0.05)
                continue
            code = int(code_of(answer))
            if code == 0:
                return answer
            if code not in PASSING:
                sys.exit(f"error {code}: fenced or refused; the next start goes on from the committed offsets")
            time.sleep(0.02)

    def coordinator(self, kind: int) -> tuple[str, int]:
        return self.cluster.patiently(lambda: self.cluster.coordinator(self.group, kind))

    def begin(self) -> None:
        answer = self.retried(
            lambda: self.cluster.ask(
                "init_producer_id",
                self.coordinator(1),
                transactional_id=self.group,
                transaction_timeout=milliseconds(20000),
                producer_id=-1,
                producer_epoch=-1,
            ),
            lambda a: a.error_code,
        )
        self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)

    def produce(self, partition: int, records: list[tuple[bytes | None, bytes | None]]) -> None:
        data = encode(
            records,
            int(time.time() * 1000),
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=0,
            transactional=True,
        )
        part = nested("produce", 12, "PartitionProduceData")(index=partition, records=data)
        topic = nested("produce", 12, "TopicProduceData")(name=self.target, partition_data=(part,))

        def ask() -> Any:
            self.cluster.refresh(self.target)
            return self.cluster.ask(
                "produce",
                self.cluster._at(self.target, partition),
                transactional_id=self.group,
                acks=-1,
                timeout=milliseconds(10000),
                topic_data=(topic,),
            )

        self.retried(ask, lambda a: a.responses[0].partition_responses[0].error_code)

    def commit(self, positions: dict[int, int]) -> None:
        part = nested("txn_offset_commit", 5, "TxnOffsetCommitRequestPartition")
        topic = nested("txn_offset_commit", 5, "TxnOffsetCommitRequestTopic")(
            name=self.source,
            partitions=tuple(
                part(partition_index=p, committed_offset=at, committed_leader_epoch=-1, committed_metadata="")
                for p, at in positions.items()
            ),
        )
        self.retried(
            lambda: self.cluster.ask(
                "txn_offset_commit",
                self.coordinator(0),
                transactional_id=self.group,
                group_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=(topic,),
            ),
            lambda a: a.topics[0].partitions[0].error_code,
        )
        answer = self.retried(
            lambda: self.cluster.ask(
                "end_txn",
                self.coordinator(1),
                transactional_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=True,
            ),
            lambda a: a.error_code,
        )
        self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)

    def run(self) -> None:
        self.begin()
        done = self.cluster.patiently(lambda: self.cluster.committed(self.group)).get(self.source, {})
        partitions = self.cluster.patiently(lambda: self.cluster.partitions(self.source))
        positions = {p: done.get(p, (0, ""))[0] for p in partitions}
        while True:
            reader = CommittedReader(self.cluster, self.source)
            reader._positions = dict(positions)
            try:
                reader.poll(wait_ms=200)
            except (OSError, AtOnceError):
                self.cluster.close()
                continue
            taken: dict[int, list[Any]] = {}
            for seen in reader.seen:
                mine = taken.setdefault(seen.record.partition, [])
                if len(mine) < PER_BATCH:
                    mine.append(seen.record)
            if not taken:
                continue
            for partition, records in sorted(taken.items()):
                self.produce(partition, [(r.key, r.value) for r in records])
                positions[partition] = records[-1].offset + 1
            self.commit(positions)


if __name__ == "__main__":
    Copier(*sys.argv[1:5]).run()
