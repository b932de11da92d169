"""Three pipelines that were run and stopped by an earlier version, kept in tests/fixtures/stopped-before.tar.gz.

Made by that version's code: `PYTHONPATH=EARLIER/src python tests/package/stopped.py tests/fixtures/stopped-before.tar.gz`.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from pathlib import Path

import atonce

TOPIC = "orders"
FIRST, LATER = range(40), range(40, 100)


def pipelines(servers: str) -> list[atonce.Pipeline]:
    """Paths are relative: a pipeline's fingerprint holds them."""
    orders = atonce.Kafka(TOPIC, servers=servers)
    rows = "SELECT CAST(key AS STRING) AS id, CAST(value AS STRING) AS body FROM input"
    counts = "SELECT CAST(value AS STRING) AS body, count(*) AS n FROM input GROUP BY value"
    few = {"spark.sql.shuffle.partitions": "1"}
    return [
        atonce.Pipeline("to-table").read(orders).transform(rows).write(atonce.SQLite("out.db", table="orders")),
        atonce.Pipeline("to-topic")
        .read(orders)
        .transform("SELECT key, value FROM input")
        .write(atonce.Kafka("copy", servers=servers, partitions=2)),
        atonce.Pipeline("counts", spark=few)
        .read(orders)
        .transform(counts)
        .write(atonce.SQLite("out.db", table="counts", mode="upsert", key="body"), mode="update"),
    ]


def produce(servers: str, numbers: range) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    for number in numbers:
        producer.send(TOPIC, key=b"%d" % number, value=b"kind %d" % (number % 4), partition=number % 2)
    producer.close()


SETTINGS = {
    "num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # However old the archive is: nothing in it is forgotten.
    "log.retention.ms": -1,
    "offsets.retention.minutes": 2**31 - 1,
    "transactional.id.expiration.ms": 2**31 - 1,
}


def make(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with atonce.Broker(data="broker", settings=SETTINGS) as broker:
            produce(broker.servers, FIRST)
            for pipeline in pipelines(broker.servers):
                pipeline.run(available_now=True)
        with tarfile.open(archive, "w:gz") as packed:
            for name in ("broker", "out.db", ".atonce"):
                packed.add(name, filter=lambda each: None if each.name.endswith((".log.txt", "broker.log")) else each)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
