"""The outbox: rows of a SQL table → Kafka, in the order of their id, each once. `python examples/outbox.py`"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

import atonce

ROWS = 300


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-outbox-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        shop = scratch / "shop.db"
        with sqlite3.connect(shop) as db:
            # The application writes its order and this row in one transaction; we publish what is committed.
            db.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT, event TEXT)")
            db.executemany(
                "INSERT INTO outbox (customer, event) VALUES (?, ?)",
                [(f"customer-{n % 9}", f"order {n} placed") for n in range(ROWS)],
            )
        outbox = (
            atonce.Pipeline("outbox", checkpoint=str(scratch / "outbox"))
            .read(atonce.Table(f"sqlite:///{shop}", table="outbox", column="id"))
            .transform("SELECT customer AS key, event AS value FROM input")
            .write(atonce.Kafka("events", servers=broker.servers, partitions=1))
        )
        outbox.run(available_now=True)
        outbox.run(available_now=True)  # nothing new, so nothing is published again

        consumer = KafkaConsumer(bootstrap_servers=broker.servers)
        end = consumer.end_offsets([TopicPartition("events", 0)])
        consumer.close()
        print(f"{ROWS} rows in the outbox; the topic ends at {next(iter(end.values()))} (markers take offsets too)")


if __name__ == "__main__":
    main()
