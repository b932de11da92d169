"""A pandas UDF: a function on whole columns, much faster than one on values. `python examples/pandas_udf.py`

Needs `pip install 'atonce[pandas]'`.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import pandas as pd
from kafka import KafkaProducer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import atonce

READINGS = 200


def celsius(fahrenheit: pd.Series) -> pd.Series:
    return ((fahrenheit - 32.0) / 1.8).round(2)


def in_celsius(df: DataFrame) -> DataFrame:
    to_celsius = F.pandas_udf(celsius, DoubleType())
    reading = df.select(F.col("key").cast("string").alias("sensor"), F.col("value").cast("string").cast("double"))
    return reading.select("sensor", to_celsius("value").alias("celsius"))


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-pandas-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        producer = KafkaProducer(bootstrap_servers=broker.servers)
        for number in range(READINGS):
            producer.send("readings", key=f"sensor-{number % 4}".encode(), value=str(32 + 1.8 * number).encode())
        producer.close()

        pipeline = (
            atonce.Pipeline("readings", checkpoint=str(scratch / "readings"))
            .read(atonce.Kafka("readings", servers=broker.servers))
            .transform(in_celsius)
            .write(atonce.SQLite(scratch / "readings.db", table="readings"))
        )
        pipeline.run(available_now=True)

        with sqlite3.connect(scratch / "readings.db") as db:
            rows, least, most = db.execute("SELECT count(*), min(celsius), max(celsius) FROM readings").fetchone()
        print(f"{rows} readings from {least} to {most} degrees Celsius")


if __name__ == "__main__":
    main()
