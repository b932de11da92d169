"""A table kept equal to a table elsewhere, by its changes as Debezium sends them. `python examples/cdc.py`

Inserts, updates and deletions go into an upserted table in the order of the database's log. Changes that come late, or
again, change nothing: the order of a deleted row is remembered, too.
"""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import atonce

CHANGES = 400


def change(lsn: int, table: dict[int, str], rng: random.Random) -> dict[str, Any]:
    """One change of `table`, in Debezium's envelope."""
    key = rng.randrange(30)
    before = {"id": key, "name": table[key]} if key in table else None
    if before and rng.random() < 0.3:
        del table[key]
        return {"op": "d", "before": before, "after": None, "source": {"lsn": lsn}}
    table[key] = f"name {lsn}"
    op = "u" if before else "c"
    return {"op": op, "before": before, "after": {"id": key, "name": table[key]}, "source": {"lsn": lsn}}


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-cdc-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        incoming = scratch / "incoming"
        incoming.mkdir()
        table: dict[int, str] = {}
        rng = random.Random(7)
        changes = [json.dumps(change(lsn, table, rng)) for lsn in range(CHANGES)]
        rng.shuffle(changes)  # whatever order they come in
        (incoming / "changes.txt").write_text("".join(f"{each}\n" for each in changes))

        atonce.Pipeline("publish-changes", checkpoint=str(scratch / "publish")).read(
            atonce.Files(str(incoming), format="text")
        ).write(atonce.Kafka("customers", servers=broker.servers)).run(available_now=True)

        copy = (
            atonce.Pipeline("customers", checkpoint=str(scratch / "customers"))
            .read(atonce.Kafka("customers", servers=broker.servers, options={"maxOffsetsPerTrigger": "100"}))
            .cdc("debezium", "id bigint, name string", order="source.lsn bigint")
            .write(
                atonce.SQLite(
                    scratch / "shop.db", table="customers", mode="upsert", key="id", order_by="lsn", delete="deleted"
                )
            )
        )
        copy.run(available_now=True)
        with sqlite3.connect(scratch / "shop.db") as db:
            found = dict(db.execute("SELECT id, name FROM customers"))
        print(f"{len(found)} customers, {'the same' if found == table else 'others'} as in the database")


if __name__ == "__main__":
    main()
