"""Orders: files → Kafka → Spark → PostgreSQL, effectively once on both halves. `python examples/orders.py`

Uses the database in DATABASE_URL, or a PostgreSQL of its own that goes away at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import psycopg

import atonce
from atonce.testing import PostgresServer

ORDERS = 1_000


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-orders-")))
        url = os.environ.get("DATABASE_URL") or stack.enter_context(PostgresServer()).url
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        incoming = scratch / "incoming"
        incoming.mkdir()
        lines = (json.dumps({"id": n, "item": f"item {n % 7}", "cents": n * 5 % 9_000}) for n in range(ORDERS))
        (incoming / "orders.json").write_text("\n".join(lines))

        publish = (
            atonce.Pipeline("publish-orders", checkpoint=str(scratch / "publish"))
            .read(atonce.Files(str(incoming), format="text"))
            .transform("SELECT get_json_object(value, '$.id') AS key, value FROM input")
            .write(atonce.Kafka("orders", servers=broker.servers))
        )
        store = (
            atonce.Pipeline("store-orders", checkpoint=str(scratch / "store"))
            .read(atonce.Kafka("orders", servers=broker.servers))
            .transform(
                "SELECT o.* FROM (SELECT from_json(CAST(value AS STRING), 'id BIGINT, item STRING, cents BIGINT') AS o "
                "FROM input)"
            )
            .write(atonce.Postgres(url, table="example_orders", create=True))
        )
        publish.run(available_now=True)
        store.run(available_now=True)

        with psycopg.connect(url) as db:
            count, distinct = db.execute("SELECT count(*), count(DISTINCT id) FROM example_orders").fetchone() or (0, 0)
        print(f"{ORDERS} orders published, {count} rows in PostgreSQL, {distinct} of them different")


if __name__ == "__main__":
    main()
