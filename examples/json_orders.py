"""JSON in Kafka → typed rows: orders with items become one row for each item. `python examples/json_orders.py`"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import atonce

ORDERS = 100
SCHEMA = "id INT, customer STRING, at TIMESTAMP, items ARRAY<STRUCT<sku: STRING, quantity: INT>>"


def items(df: DataFrame) -> DataFrame:
    order = F.from_json(df["value"].cast("string"), SCHEMA)
    each = df.select(order.alias("o")).select("o.id", "o.customer", "o.at", F.explode("o.items").alias("item"))
    return each.select("id", "customer", "at", "item.sku", "item.quantity")


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-json-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        producer = KafkaProducer(bootstrap_servers=broker.servers)
        for number in range(ORDERS):
            order = {
                "id": number,
                "customer": f"customer-{number % 7}",
                "at": "2026-01-31T12:00:00Z",
                "items": [{"sku": f"sku-{part}", "quantity": part + 1} for part in range(3)],
            }
            producer.send("orders", key=str(number).encode(), value=json.dumps(order).encode())
        producer.close()

        pipeline = (
            atonce.Pipeline("items", checkpoint=str(scratch / "items"))
            .read(atonce.Kafka("orders", servers=broker.servers))
            .transform(items)
            .write(atonce.SQLite(scratch / "shop.db", table="items"))
        )
        pipeline.run(available_now=True)

        with sqlite3.connect(scratch / "shop.db") as db:
            orders, rows, quantity = db.execute(
                "SELECT count(DISTINCT id), count(*), sum(quantity) FROM items"
            ).fetchone()
        print(f"{orders} orders, {rows} items, quantity {quantity}")


if __name__ == "__main__":
    main()
