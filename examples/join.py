"""A stream joined with a table that stands still: orders get their customer's country. `python examples/join.py`

The table is read again for every batch, so a changed file counts from the next batch on.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import atonce

ORDERS = 120


def with_country(customers: str) -> Callable[[DataFrame], DataFrame]:
    def joined(df: DataFrame) -> DataFrame:
        known = df.sparkSession.read.csv(customers, header=True, schema="customer STRING, country STRING")
        orders = df.select(F.col("key").cast("string").alias("id"), F.col("value").cast("string").alias("customer"))
        return orders.join(F.broadcast(known), "customer", "left").select("id", "customer", "country")

    return joined


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-join-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        (scratch / "customers.csv").write_text("customer,country\nann,NO\nbob,PT\ncat,NO\n")
        producer = KafkaProducer(bootstrap_servers=broker.servers)
        for number in range(ORDERS):
            customer = ("ann", "bob", "cat", "someone else")[number % 4]
            producer.send("orders", key=str(number).encode(), value=customer.encode())
        producer.close()

        pipeline = (
            atonce.Pipeline("orders-by-country", checkpoint=str(scratch / "join"))
            .read(atonce.Kafka("orders", servers=broker.servers))
            .transform(with_country(str(scratch / "customers.csv")))
            .write(atonce.SQLite(scratch / "shop.db", table="orders"))
        )
        pipeline.run(available_now=True)

        with sqlite3.connect(scratch / "shop.db") as db:
            found = db.execute("SELECT country, count(*) FROM orders GROUP BY country ORDER BY country").fetchall()
        print(", ".join(f"{country or 'unknown'}: {count}" for country, count in found))


if __name__ == "__main__":
    main()
