"""Structured Streaming with Spark's own Kafka connector, one topic into another: what most PySpark programs do.

PySpark with its connector has an environment of its own:

    python examples/verify/others.py spark       # prepares it and prints the command
"""

import sys

from pyspark.sql import SparkSession

servers, source, target, group, checkpoints, jars = sys.argv[1:7]
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
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("kafka.isolation.level", "read_committed")
    .option("maxOffsetsPerTrigger", "40")
    .load()
)
query = (
    records.select("key", "value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", target)
    .option("checkpointLocation", f"{checkpoints}/{group}")
    .trigger(processingTime="300 milliseconds")
    .start()
)
query.awaitTermination()
