"""Spark's classes, loaded and checked once and kept: the JVM then starts with two fifths less CPU.

`python -m atonce.spark.start.class_archive` makes the archive (Java's class data sharing) in the user's cache by
running a small session; `make setup` does that. Sessions use it when it is there; Java itself ignores one that does
not fit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


_PYSPARK_OF = ".pyspark"
"""Beside each archive, the path of the PySpark that it was made for."""


def archive_file() -> Path:
    """Where the archive for this PySpark and this Java is kept, whether it is there or not."""
    import pyspark

    from atonce.local.java import find_java

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fits = f"{_pyspark()} {pyspark.__version__} {find_java().home}"
    return cache / "atonce" / "class-archive" / f"{hashlib.sha256(fits.encode()).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """What a session passes to its JVM: nothing when there is no archive."""
    file = archive_file()
    return f"-XX:SharedArchiveFile={file} {QUIET}" if file.exists() else ""


def make() -> Path:
    """Run a session that touches what pipelines use; its JVM writes the archive when it ends."""
    file = archive_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}.draft")
    try:
        command = [sys.executable, "-m", __spec__.name, "--train", str(draft)]
        trained = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=300)
        if trained.returncode:
            raise SystemExit(f"training ended with {trained.returncode}:\n{trained.stderr[-3000:]}")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    file.with_suffix(_PYSPARK_OF).write_text(_pyspark())
    remove_orphans(file.parent)
    return file


def remove_orphans(folder: Path) -> None:
    """An archive takes 180 MB, and nobody can use it any more when the environment that it was made for is gone."""
    for note in folder.glob(f"*{_PYSPARK_OF}"):
        if not Path(note.read_text()).exists():
            note.with_suffix(".jsa").unlink(missing_ok=True)
            note.unlink(missing_ok=True)


def _pyspark() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


def train(draft: str) -> None:
    from pyspark.sql import SparkSession

    from atonce.broker.embedded import Broker
    from atonce.connectors.kafka.read.stream import source_schema
    from atonce.spark import session as sessions
    from atonce.spark.arrow_job import map_in_arrow
    from atonce.spark.checkpoint.manager import quick_on_a_local_disk
    from atonce.spark.columnar_plan import on_columns
    from atonce.spark.pruning import used_columns

    sessions.__dict__["class_archive_options"] = lambda: f"-XX:ArchiveClassesAtExit={draft} {QUIET}"
    spark: SparkSession = sessions.session("local[2]")
    shuffled = map_in_arrow(spark.range(100).repartition(2), _same, "id bigint").selectExpr("CAST(id % 2 AS INT) AS id")
    map_in_arrow(shuffled.repartitionById(2, "id"), _same, "id int").collect()
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
            with quick_on_a_local_disk(spark, folder):
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
    if "--train" in sys.argv:
        train(sys.argv[-1])
    else:
        print(f"class archive in {make()}")
