"""Counts in windows of event time: a row for each minute, once the minute is over. `python examples/windows.py`

The watermark says how late a record may come. A window is delivered when no record for it can come any more.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import atonce

MINUTES, PER_MINUTE = 5, 30
FIRST_MS = (int(time.time()) // 60 - 60) * 60_000  # an hour ago: a topic removes what is older than a week


def per_minute(df: DataFrame) -> DataFrame:
    counted = df.withWatermark("timestamp", "10 seconds").groupBy(F.window("timestamp", "1 minute")).count()
    return counted.select(F.col("window.start").alias("minute"), "count")


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-windows-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        producer = KafkaProducer(bootstrap_servers=broker.servers)
        for number in range(MINUTES * PER_MINUTE):
            producer.send("clicks", value=b"click", timestamp_ms=FIRST_MS + number * 60_000 // PER_MINUTE)
        producer.send("clicks", value=b"later", timestamp_ms=FIRST_MS + (MINUTES + 5) * 60_000)
        producer.close()

        pipeline = (
            atonce.Pipeline("clicks-per-minute", checkpoint=str(scratch / "clicks"))
            .read(atonce.Kafka("clicks", servers=broker.servers))
            .transform(per_minute)
            .write(atonce.SQLite(scratch / "clicks.db", table="minutes"), mode="append")
        )
        pipeline.run(available_now=True)

        with sqlite3.connect(scratch / "clicks.db") as db:
            minutes = db.execute("SELECT minute, count FROM minutes ORDER BY minute").fetchall()
        for minute, count in minutes:
            print(f"{minute}: {count}")
        print(f"{len(minutes)} minutes are over, {sum(count for _, count in minutes)} clicks in them")


if __name__ == "__main__":
    main()
