"""Payments with a stateful balance: Kafka → sum per account → an upserted table. `python examples/payments.py`

Spark keeps the sums in its state store. After any crash the balance is as if each payment had been applied once.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import atonce

ACCOUNTS, PAYMENTS = 5, 500


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-payments-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        incoming = scratch / "incoming"
        incoming.mkdir()
        (incoming / "payments.csv").write_text("".join(f"account-{n % ACCOUNTS},{n}\n" for n in range(PAYMENTS)))

        publish = (
            atonce.Pipeline("publish-payments", checkpoint=str(scratch / "publish"))
            .read(atonce.Files(str(incoming), format="csv", schema="account STRING, cents BIGINT"))
            .transform("SELECT account AS key, CAST(cents AS STRING) AS value FROM input")
            .write(atonce.Kafka("payments", servers=broker.servers))
        )
        balance = (
            atonce.Pipeline("balances", checkpoint=str(scratch / "balances"))
            .read(atonce.Kafka("payments", servers=broker.servers, options={"maxOffsetsPerTrigger": "100"}))
            .transform(
                "SELECT CAST(key AS STRING) AS account, sum(CAST(CAST(value AS STRING) AS BIGINT)) AS cents, "
                "count(*) AS payments FROM input "
                "GROUP BY CAST(key AS STRING)"
            )
            .write(
                # Each account comes once a batch, so no order_by is needed: the latest sum is the balance.
                atonce.SQLite(str(scratch / "bank.db"), table="balances", mode="upsert", key="account"),
                mode="update",
            )
        )
        publish.run(available_now=True)
        balance.run(available_now=True)

        with sqlite3.connect(scratch / "bank.db") as db:
            for account, cents in db.execute("SELECT account, cents FROM balances ORDER BY account"):
                print(f"{account}: {cents}")
            total = db.execute("SELECT sum(cents) FROM balances").fetchone()[0]
        print(f"total {total}, expected {sum(range(PAYMENTS))}")


if __name__ == "__main__":
    main()
