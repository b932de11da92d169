"""Our own contestants, each as a program that runs until it is killed, like every peer.

Arguments: kind (arrow, dataframe, rows, postgres-arrow, postgres or postgres-rows), level, servers, input topic, output
topic or database URL, name, scratch directory, records per micro-batch (0: the default admission by bytes), and
optionally Spark's master, and a topic to run in with: it is copied first, in small batches, by the same session.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import atonce
from atonce.local.secrets import resolved
from atonce.spark.planning.planner import COLUMNS

SPARK = {"spark.driver.memory": "2g"}


def upper(batch: Any) -> Any:
    """Upper-case values, on columns; the bytes are looked at as text without a copy."""
    import pyarrow as pa
    import pyarrow.compute as pc

    value = pc.ascii_upper(batch.column("value").view(pa.string())).view(pa.binary())
    return pa.record_batch({"key": batch.column("key"), "value": value})


def four_columns(batch: Any) -> Any:
    """The key as a number, where the record stood, and its value as text."""
    import pyarrow as pa

    return pa.record_batch(
        {
            "id": batch.column("key").view(pa.string()).cast(pa.int64()),
            "origin": batch.column("partition"),
            "position": batch.column("offset"),
            "body": batch.column("value").view(pa.string()),
        }
    )


RUN_IN_BATCH = 40_000
"""Large enough for all the steps that a large batch takes."""


def run_in(arguments: list[str]) -> None:
    """The steps of a micro-batch a hundred times over: a stream's JVMs are warm, and a cluster has several of them."""
    kind, level, servers, _, target, name, scratch, _, master, topic = arguments
    first = [kind, level, servers, topic, f"{target}-run-in", f"{name}-run-in", f"{scratch}/run-in"]
    pipeline([*first, str(RUN_IN_BATCH), master]).run(available_now=True)


def pipeline(arguments: list[str]) -> Any:
    kind, level, servers, source, target, name, scratch, per_batch = arguments[:8]
    master = arguments[8] if len(arguments) > 8 else "local[2]"
    # By records, or else by bytes, as it is by default.
    options = {"maxOffsetsPerTrigger": per_batch, "maxBytesPerTrigger": "none"} if int(per_batch) else {}
    # As a transform that columns cannot do would run: every record a row of Spark's JVM.
    spark = SPARK | ({COLUMNS: "false"} if kind.endswith("rows") else {})
    begun = atonce.Pipeline(
        name, guarantee=level, checkpoint=str(Path(scratch) / "checkpoint"), master=master, spark=spark
    ).read(atonce.Kafka(source, servers=servers, options=options))
    if kind == "arrow":
        return begun.map_arrow(upper).write(atonce.Kafka(target, servers=servers))
    if kind in ("dataframe", "rows"):
        query = "SELECT key, CAST(upper(CAST(value AS STRING)) AS BINARY) AS value FROM input"
        return begun.transform(query).write(atonce.Kafka(target, servers=servers))
    table = atonce.Postgres(target, table=name.replace("-", "_"), create=True)
    if kind == "postgres-arrow":
        return begun.map_arrow(four_columns, "id bigint, origin int, position bigint, body string").write(table)
    rows = (
        "SELECT CAST(CAST(key AS STRING) AS BIGINT) AS id, partition AS origin, `offset` AS position, "
        "CAST(value AS STRING) AS body FROM input"
    )
    return begun.transform(rows).write(table)


if __name__ == "__main__":
    if len(sys.argv) > 10:
        run_in(sys.argv[1:])
    pipeline([resolved(word) for word in sys.argv[1:]]).run()
