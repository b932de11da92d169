"""Spark's own Kafka connector (JVM), at least once: upper-case from one topic to another. Runs until it is killed.

Arguments: servers, input topic, output topic, checkpoint directory, jars separated by commas, records per micro-batch
(0: no limit).
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    servers, source, target, checkpoint, jars = sys.argv[1:6]
    per_batch = int(sys.argv[6])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
    )
    if per_batch:
        reader = reader.option("maxOffsetsPerTrigger", str(per_batch))
    query = (
        reader.load()
        .selectExpr("key", "CAST(upper(CAST(value AS STRING)) AS BINARY) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


main()
