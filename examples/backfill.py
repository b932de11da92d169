"""History beside a running pipeline: what came before it began is delivered under another name, each record once.

`python examples/backfill.py`
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

from kafka import KafkaProducer

import atonce

BEFORE, SINCE = 300, 200


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-backfill-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        producer = KafkaProducer(bootstrap_servers=broker.servers)

        def send(first: int, end: int) -> None:
            for number in range(first, end):
                producer.send("orders", key=str(number).encode(), value=f"order {number}".encode())
            producer.flush()

        live = (
            atonce.Pipeline("orders", checkpoint=str(scratch / "orders"))
            .read(atonce.Kafka("orders", servers=broker.servers, start="latest"))
            .transform("SELECT CAST(key AS STRING) AS id, CAST(value AS STRING) AS body FROM input")
            .write(atonce.SQLite(scratch / "shop.db", table="orders"))
        )
        send(0, BEFORE)
        live.run(available_now=True)  # begins at the end of what is there
        send(BEFORE, BEFORE + SINCE)
        # Up to where `live` began, into the same table, while it goes on.
        history = live.backfill("orders-history", start="earliest", until="first")
        atonce.run(live, history, available_now=True)

        with sqlite3.connect(scratch / "shop.db") as db:
            rows, different = db.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone()
        print(f"{rows} orders, {different} of them different")


if __name__ == "__main__":
    main()
