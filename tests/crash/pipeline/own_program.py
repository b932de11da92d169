"""A PySpark program of somebody's own: its own session, a UDF at module level, and our parts in it.

`python own_program.py SERVERS TOPIC FOLDER`. Prints what it found, as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.types import StringType

import atonce


@udf(StringType())
def shouted(text: str) -> str:
    return text.upper() + "!"


def refused(read: object) -> str:
    try:
        read.load()  # type: ignore[attr-defined]
    except Exception as error:
        return str(error)
    return "it was not refused"


def main(servers: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    reader = spark.readStream.format("atonce").option("kafka.bootstrap.servers", servers)
    misspelt = refused(reader.option("subscribe", topic).option("startingOffset", "earliest"))
    stream = (
        spark.readStream.format("atonce")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(shouted(col("value").cast("string")).alias("value"))
    )
    sink = atonce.SQLite(f"{folder}/own.db", table="shouted")
    query = (
        stream.writeStream.foreachBatch(atonce.deliver(sink, name=f"{topic}-stream"))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    pipeline = (
        atonce.Pipeline(f"{topic}-pipeline", checkpoint=f"{folder}/pipeline")
        .read(atonce.Kafka(topic, servers=servers))
        .transform(lambda df: df.select(shouted(col("value").cast("string")).alias("value")))
        .write(atonce.SQLite(f"{folder}/own.db", table="piped"))
    )
    pipeline.run(available_now=True)
    print(json.dumps({"misspelt": misspelt, "app": spark.sparkContext.appName}))


if __name__ == "__main__":
    main(*sys.argv[1:])
