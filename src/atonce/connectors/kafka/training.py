"""A small session over topics that touches what pipelines use, so that its JVM can keep the classes it loaded.

Run as a program by `spark/start/class_archive.py`, with the file that the JVM shall write.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atonce.spark.start.class_archive import QUIET


def train(draft: str) -> None:
    from atonce.broker.embedded import Broker
    from atonce.connectors.kafka.read.stream import source_schema
    from atonce.spark import session as sessions
    from atonce.spark.arrow_job import map_in_arrow
    from atonce.spark.checkpoint.manager import suited_to
    from atonce.spark.planning.columnar_plan import on_columns
    from atonce.spark.planning.pruning import used_columns
    from atonce.spark.versions import repartitioned

    sessions.__dict__["class_archive_options"] = lambda: f"-XX:ArchiveClassesAtExit={draft} {QUIET}"
    spark = sessions.session("local[2]")
    shuffled = map_in_arrow(spark.range(100).repartition(2), _same, "id bigint").selectExpr("CAST(id % 2 AS INT) AS id")
    map_in_arrow(repartitioned(shuffled, 2, "id"), _same, "id int").collect()
    for plan in (on_columns, used_columns):
        plan(spark, source_schema(False), lambda df: df.selectExpr("key", "upper(CAST(value AS STRING)) AS value"))
    with tempfile.TemporaryDirectory(prefix="atonce-train-") as folder, Broker(data=Path(folder) / "broker") as broker:
        (Path(folder) / "in").mkdir()
        (Path(folder) / "in" / "a.txt").write_text("one\ntwo\n")
        lines = spark.readStream.text(f"{folder}/in")
        _produce(broker.servers, "train")
        ours = spark.readStream.format("atonce").option("kafka.bootstrap.servers", broker.servers)
        records = ours.option("subscribe", "train").load()
        for name, df in (("plain", lines), ("stateful", lines.groupBy("value").count()), ("ours", records)):
            writer = df.writeStream.outputMode("update" if name == "stateful" else "append")
            writer = writer.foreachBatch(lambda batch, _: batch.coalesce(1).collect() and None)
            with suited_to(spark, folder, stateful=False):
                query = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
            query.awaitTermination()
    # The archive is written while the JVM ends, so its end is waited for.
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(240)


def _produce(servers: str, topic: str) -> None:
    import pyarrow as pa

    from atonce.client.cluster import Cluster
    from atonce.client.operate.admin import create_topic
    from atonce.connectors.kafka.write.blobs import Encoder, Targets
    from atonce.connectors.kafka.write.send import SendTask

    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=2)
    encoder = Encoder(targets=Targets(partitions={topic: 2}, slots=1), topic=topic)
    rows = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": ["one", "two", "three"]})
    list(SendTask(servers=servers, config={}, mode="plain", encoder=encoder)([rows]))


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


if __name__ == "__main__":
    train(sys.argv[-1])
