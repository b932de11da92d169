"""The broker's own limit: record batches go from one topic into another unopened, as fast as a broker gives and takes.

Nothing is decoded, transformed or promised, so no pipeline can be faster over this broker and this client. Runs until
it is killed. Arguments: servers, input topic, output topic.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

from atonce.client.cluster import Cluster
from atonce.client.offsets import LATEST, TopicPartition, list_offsets
from atonce.client.produce import Sender, idempotent_producer
from atonce.client.read.ranges import Wanted
from atonce.client.read.reader import Reader
from atonce.errors import UsageError
from atonce.records.columns import AT, ATTRIBUTES, CONTROL, TO


def relay(servers: str, source: str, target: str, share: int, shares: int) -> None:
    """Every `shares`th partition, one after the other; the next fetch is on its way while one is sent."""
    cluster = Cluster(servers)
    topic = cluster.topic(source)
    if topic is None:
        raise UsageError(f"there is no topic {source!r} to relay")
    partitions = [TopicPartition(source, each.index) for each in topic.partitions][share::shares]
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    producer_id, epoch = idempotent_producer(cluster)
    sender = Sender(cluster, producer_id=producer_id, epoch=epoch)
    for tp in partitions:
        for _, located, _ in Reader(cluster, Wanted(tp.topic, tp.partition, 0, ends[tp])).responses():
            content = memoryview(located.data)
            for row in located.table:
                if not row[ATTRIBUTES] & CONTROL:
                    batch = bytearray(content[row[AT] : row[TO]])
                    batch[:8] = bytes(8)  # its base offset, which is the broker's to give
                    sender.send(target, tp.partition, batch)
    sender.flush()


def main() -> None:
    servers, source, target = sys.argv[1:4]
    shares = os.cpu_count() or 1
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=relay, args=(servers, source, target, share, shares)) for share in range(shares)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            sys.exit(worker.exitcode)
    signal.pause()


if __name__ == "__main__":
    main()
