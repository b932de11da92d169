"""What the source's tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atonce.client.cluster import Cluster
from atonce.client.produce import Sender
from tests.contract.client.parts import blobs


def fill(servers: str, topic: str, numbers: range, partition: int = 0) -> None:
    with Cluster(servers) as cluster:
        sender = Sender(cluster)
        for blob in blobs(numbers):
            sender.send(topic, partition, blob)
        sender.flush()
        sender.close()


def batch(spark: Any, servers: str, **options: str) -> Any:
    return spark.read.format("atonce").option("kafka.bootstrap.servers", servers).options(**options).load()


class Drain:
    """A query over one checkpoint that notes what each micro-batch held."""

    def __init__(self, spark: Any, servers: str, checkpoint: Path, **options: str) -> None:
        self._spark, self._servers, self._checkpoint, self._options = spark, servers, checkpoint, options
        self.batches: list[list[str]] = []

    def start(self, **trigger: Any) -> Any:
        reader = self._spark.readStream.format("atonce").option("kafka.bootstrap.servers", self._servers)
        stream = reader.options(**self._options).load().selectExpr("cast(value as string) value")

        def note(rows: Any, number: int) -> None:
            self.batches.append([row.value for row in rows.collect()])

        writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def run(self) -> list[list[str]]:
        """Everything there is now, and what each batch held."""
        self.batches = []
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        return self.batches

    @property
    def values(self) -> list[str]:
        return [value for found in self.batches for value in found]
