"""A driver that gets killed while it puts records aside, or deletes rows. Run as a script with one JSON argument, as `victim.py`."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import atonce
from atonce.spark.session import session
from tests.crash.pipeline.victim import PER_BATCH, Hold


def pipeline(case: dict[str, str], servers: str, scratch: str) -> atonce.Pipeline:
    """Every third record is malformed, and every fifth gives a row that cannot be delivered."""
    name, folder = case["name"], Path(scratch)
    if case["sink"] == "deletes":
        return deleting(name, servers, folder)
    sinks: dict[str, Any] = {
        "kafka": atonce.Kafka(f"{name}-out", servers=servers, on_error="dead-letter", dead_letter=f"{name}-dead"),
        "sqlite": atonce.SQLite(folder / f"{name}.db", table="out", on_error="dead-letter"),
        "duckdb": atonce.DuckDB(folder / f"{name}.duckdb", table="out", on_error="dead-letter"),
        "delta": atonce.Delta(folder / name, on_error="dead-letter"),
    }
    bad = "repeat('x', 2000000)" if case["sink"] == "kafka" else "CAST(X'FF' AS STRING)"
    return (
        atonce.Pipeline(name, checkpoint=str(folder / f"checkpoint-{name}"))
        .read(atonce.Kafka(name, servers=servers, options={"maxOffsetsPerTrigger": str(PER_BATCH)}))
        .parse("json", "id int")
        .transform(
            f"SELECT CAST(key AS STRING) AS key, IF(value.id % 5 = 0, {bad}, CAST(value.id AS STRING)) AS value FROM input"
        )
        .write(sinks[case["sink"]])
    )


def deleting(name: str, servers: str, folder: Path) -> atonce.Pipeline:
    """Tombstones delete by key, and the filter lets them pass."""
    sink = atonce.SQLite(folder / f"{name}.db", table="out", mode="upsert", key="id", order_by="seq")
    return (
        atonce.Pipeline(name, checkpoint=str(folder / f"checkpoint-{name}"))
        .read(atonce.Kafka(name, servers=servers, options={"maxOffsetsPerTrigger": str(PER_BATCH)}))
        .parse("json", "name string, size int")
        .transform("SELECT CAST(key AS STRING) AS id, value.name, offset AS seq FROM input WHERE value.size > 0")
        .deletes("tombstones")
        .write(sink)
    )


def main() -> None:
    told = json.loads(sys.argv[1])
    session("local[2]")
    held = threading.Semaphore(0)
    for case in told["cases"]:
        run = replace(pipeline(case, told["servers"], told["scratch"]), observer=Hold(case["step"], held)).run
        threading.Thread(target=run, kwargs={"available_now": True}, daemon=True).start()
        held.acquire()
    print(f"held {len(told['cases'])}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
