"""Malformed records put aside with their originals, and delivered after all. `python examples/dead_letters.py`

The first version of the pipeline expects a number. What does not fit goes to the dead letters, the rest is delivered;
then the schema is corrected, and the letters are replayed: each once.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import atonce

ORDERS, BAD = 100, 3


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-letters-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        incoming = scratch / "incoming"
        incoming.mkdir()
        prices = ['"on request"' if n < BAD else str(n) for n in range(ORDERS)]
        lines = [f'{{"id": {n}, "price": {price}}}\n' for n, price in enumerate(prices)]
        (incoming / "orders.txt").write_text("".join(lines))

        atonce.Pipeline("publish-orders", checkpoint=str(scratch / "publish")).read(
            atonce.Files(str(incoming), format="text")
        ).write(atonce.Kafka("orders", servers=broker.servers)).run(available_now=True)

        def orders(price: str) -> atonce.Pipeline:
            """`price`: the type that is expected of it."""
            return (
                atonce.Pipeline("orders", checkpoint=str(scratch / "orders"))
                .read(atonce.Kafka("orders", servers=broker.servers))
                .parse("json", f"id bigint, price {price}")
                .transform("SELECT value.id, CAST(value.price AS STRING) AS price FROM input")
                .write(atonce.SQLite(scratch / "shop.db", table="orders", on_error="dead-letter"))
            )

        first = orders("bigint")
        first.run(available_now=True)
        for kept in first.dead_letters():
            print(kept.letter.place, kept.letter.original.value, kept.letter.reason)

        second = orders("string")  # in which a number, too, is not what is expected
        print(second.replay_dead_letters().words())
        with sqlite3.connect(scratch / "shop.db") as db:
            rows, different = db.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone()
        print(f"{rows} orders, {different} of them different, {BAD} of them replayed")


if __name__ == "__main__":
    main()
