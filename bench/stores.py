"""`bench stores`: the same rows of Spark into a store, by our sink and by the ordinary way without a guarantee."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atonce
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.progress import Plan, Progress
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.local.scratch import scratch_directory
from bench.contest import Contestant
from bench.copy import CPU
from bench.meter import Meter
from bench.postgres import ROWS
from bench.results import Run

SLOWEST = "slowest batch s"
STORES = ("delta", "iceberg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    spark: Any
    batches: int
    per_batch: int

    def rows(self, number: int) -> Any:
        """Batch `number`: an id, a text of 100 characters that compress badly, a time and a kind."""
        begin = number * self.per_batch
        return self.spark.range(begin, begin + self.per_batch, 1, os.cpu_count() or 1).selectExpr(
            "id",
            "concat(sha2(CAST(id AS STRING), 256), substring(sha2(CAST(-id AS STRING), 256), 1, 36)) AS body",
            "timestamp_micros(1768000000000000 + id) AS at",
            "CAST(id % 7 AS INT) AS kind",
        )


Deliver = Callable[[int, Any], None]


def contestants(filling: Filling, stores: list[str]) -> list[Contestant]:
    made: list[Contestant] = []
    for store in stores:
        if store not in STORES:
            raise UsageError(f"no store {store!r}; there are {', '.join(STORES)}")
        for name, begin in {"AtOnce, effectively-once": _ours, **_PLAIN[store]}.items():
            made.append(Contestant(f"{store}: {name}", _run(filling, store, begin)))
    return made


def _run(filling: Filling, store: str, begin: Callable[[Filling, str, Path], Deliver]) -> Callable[[], Run]:
    def run() -> Run:
        scratch = scratch_directory("bench")
        try:
            deliver = begin(filling, store, scratch)
            deliver(0, filling.rows(0))  # the first one warms, and makes the table
            meter, took = Meter([os.getpid()]).start(), []
            begun = time.monotonic()
            for number in range(1, filling.batches + 1):
                at = time.monotonic()
                deliver(number, filling.rows(number))
                took.append(time.monotonic() - at)
            ended = time.monotonic()
            meter.stop()
            cost, rows = meter.cost(begun, ended), filling.batches * filling.per_batch
            figures = {ROWS: rows / cost.elapsed_s, CPU: cost.cpu_s / (rows / 1e6), SLOWEST: max(took)}
            return Run(contestant="", round=0, others=cost.others, figures=figures)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    return run


def _catalog(scratch: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{scratch}/catalog.db", "warehouse": f"file://{scratch}/warehouse"}


def _ours(filling: Filling, store: str, scratch: Path) -> Deliver:
    who = Identity(name="bench", instance=uuid.uuid4().hex, guarantee=Guarantee.EFFECTIVELY_ONCE)
    sink: Any = atonce.Delta(scratch / "rows")
    if store == "iceberg":
        sink = atonce.Iceberg("bench.rows", _catalog(scratch), keep_snapshots=100)
    opened = sink.open(who, filling.spark)
    opened.claim()

    def deliver(number: int, rows: Any) -> None:
        positions = {"rows/0": number + 1}
        plan = Plan(query_id="bench", batch_id=number, start={"rows/0": number}, end=positions)
        after = Progress(
            instance=who.instance, query_id="bench", batch_id=number, positions=positions, sequence=number + 1
        )
        opened.output_and_progress(Batch(df=rows, plan=plan), after)

    return deliver


def _delta_rs(filling: Filling, store: str, scratch: Path) -> Deliver:
    from deltalake import write_deltalake

    return lambda number, rows: write_deltalake(str(scratch / "rows"), rows.toArrow(), mode="append")


def _pyiceberg(filling: Filling, store: str, scratch: Path) -> Deliver:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", **_catalog(scratch))
    catalog.create_namespace("bench")
    made: list[Any] = []

    def deliver(number: int, rows: Any) -> None:
        found = rows.toArrow()
        if not made:
            made.append(catalog.create_table("bench.rows", schema=found.schema))
        made[0].append(found)

    return deliver


_PLAIN: dict[str, dict[str, Callable[[Filling, str, Path], Deliver]]] = {
    "delta": {"plain delta-rs, rows.toArrow()": _delta_rs},
    "iceberg": {"plain pyiceberg, rows.toArrow()": _pyiceberg},
}
