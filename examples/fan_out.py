"""Fan-out: one input, several output topics chosen row by row, all in one transaction. `python examples/fan_out.py`"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import atonce

ORDERS = 300


def main() -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atonce-fan-out-")))
        broker = stack.enter_context(atonce.Broker(data=scratch / "broker"))
        incoming = scratch / "incoming"
        incoming.mkdir()
        (incoming / "orders.txt").write_text("".join(f"{n},{'eu' if n % 3 else 'us'}\n" for n in range(ORDERS)))

        regions = (
            atonce.Pipeline("regions", checkpoint=str(scratch / "regions"))
            .read(atonce.Files(str(incoming), format="csv", schema="id STRING, region STRING"))
            .transform("SELECT concat('orders-', region) AS topic, id AS key, id AS value FROM input")
            .write(atonce.Kafka(servers=broker.servers, progress_topic="orders-eu"))
        )
        regions.run(available_now=True)

        for topic in ("orders-eu", "orders-us"):
            read = atonce.session().read.format("atonce").option("kafka.bootstrap.servers", broker.servers)
            print(f"{topic}: {read.option('subscribe', topic).load().count()} records")


if __name__ == "__main__":
    main()
