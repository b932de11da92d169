"""Queries with Spark's own Kafka connector, as their owners wrote them. Run by the Python of bench/peers.py.

Arguments: servers, input topic, folder, jars separated by commas. Below the folder each query leaves its checkpoint and
what it has written:

finished    three batches, stopped after the last
killed      the process ends inside its third batch, when half of it is written
counting    keeps state
async       into a topic, with asynchronous progress tracking
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    servers, topic, folder, jars = sys.argv[1:5]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def read(most: int = 20) -> Any:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", most).load()

    def write(name: str, dies_in: int | None = None) -> Any:
        def into_file(df: Any, batch: int) -> None:
            rows = [row["value"] for row in df.selectExpr("CAST(value AS STRING) AS value").collect()]
            with (Path(folder) / f"{name}.txt").open("a") as file:
                if batch == dies_in:
                    file.write("".join(f"{row}\n" for row in rows[: len(rows) // 2]))
                    file.flush()
                    os._exit(9)
                file.write("".join(f"{row}\n" for row in rows))

        return into_file

    def checkpointed(writer: Any, name: str) -> Any:
        return writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)

    checkpointed(read().writeStream.foreachBatch(write("finished")), "finished").start().awaitTermination()
    counted = read().groupBy("key").count().writeStream.outputMode("update").format("noop")
    checkpointed(counted, "counting").start().awaitTermination()
    tracked = (
        read(3)
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{topic}-async")
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "1000")
        .option("checkpointLocation", f"{folder}/async")
        .start()
    )
    tracked.processAllAvailable()
    tracked.stop()
    checkpointed(read().writeStream.foreachBatch(write("killed", dies_in=2)), "killed").start().awaitTermination()


main()
