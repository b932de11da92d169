"""`bench postgres`: Kafka → PostgreSQL, one table of four columns; and plain ADBC ingest for comparison."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from atonce.local.child import Child
from atonce.local.scratch import scratch_directory
from bench import peers
from bench.contest import Contestant
from bench.copy import CPU, MEMORY, stopped_early
from bench.judge import NotDelivered, Point
from bench.meter import Meter
from bench.results import Run

ROWS = "rows/s"
POLL_S = 1.0
# So that the judge can ask afterwards when each row became visible, without counting while the contest runs.
SERVER_SETTINGS = {"track_commit_timestamp": "on"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    servers: str
    source: str
    url: str
    records: int
    warm: int
    per_batch: int
    brokers: tuple[int, ...] = ()
    timeout_s: float = 600.0


def postgres_contestants(load: Load, levels: list[str]) -> list[Contestant]:
    kinds = {"map_arrow": "postgres-arrow", "SQL": "postgres", "SQL in Spark's JVM": "postgres-rows"}
    ours = [
        Contestant(f"AtOnce {name} → PostgreSQL, {level}", partial(measure, load, level, kind))
        for level in levels
        for name, kind in kinds.items()
    ]
    return [*ours, Contestant("plain ADBC ingest, no source and no guarantee", lambda: ingest(load))]


def measure(load: Load, level: str, kind: str) -> Run:
    import psycopg

    name = f"bench-{uuid.uuid4().hex[:10]}"
    table = name.replace("-", "_")
    scratch = scratch_directory("bench")
    command = [
        sys.executable,
        "-m",
        "bench.subject",
        kind,
        level,
        load.servers,
        load.source,
        "${ATONCE_BENCH_URL}",
    ]
    command += [name, str(scratch), str(load.per_batch)]
    try:
        with psycopg.connect(load.url, autocommit=True) as database:
            log = scratch / "contestant.log"
            # The URL has a password in it, which a command line would show to everybody on the machine.
            environment = {**peers.environment(), "ATONCE_BENCH_URL": load.url}
            with Child(command, env=environment, log=log, cwd=scratch) as child:
                meter = Meter([child.leash_pid], list(load.brokers)).start()
                try:
                    _wait(database, table, load, lambda: stopped_early(child))
                finally:
                    meter.stop()
                child.kill()
            steps = _steps(database, table)
            database.execute(f"DROP TABLE {table}")
        begin = next((step for step in steps if step.records >= load.warm), steps[0])
        end = steps[-1]
        if end.records < load.records or end.at <= begin.at:
            raise NotDelivered(f"{end.records:,} of {load.records:,} rows in {len(steps)} step(s): give more --records")
        cost = meter.cost(begin.at, end.at)
        rows = end.records - begin.records
        return Run(
            contestant="",
            round=0,
            others=cost.others,
            figures={
                ROWS: rows / cost.elapsed_s,
                CPU: cost.cpu_s / (rows / 1e6),
                MEMORY: cost.peak_mb,
                "delivered twice": float(end.records - load.records),
            },
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _wait(database: Any, table: str, load: Load, alive: Callable[[], None]) -> None:
    begun = time.monotonic()
    seen = 0
    while seen < load.records:
        alive()
        if time.monotonic() - begun > load.timeout_s:
            raise NotDelivered(f"only {seen:,} of {load.records:,} rows after {load.timeout_s:g} s")
        time.sleep(POLL_S)
        # The server's own statistics cost nothing; only when they say that all may be there are rows counted.
        found = database.execute("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = %s", [table]).fetchone()
        if found and found[0] >= load.records:
            seen = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def _steps(database: Any, table: str) -> list[Point]:
    """Rows visible after each commit, with the commit's moment turned into time.monotonic()."""
    ahead = time.time() - time.monotonic()
    answer = database.execute(
        f"SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)), count(*) FROM {table} GROUP BY xmin ORDER BY 1"
    )
    steps: list[Point] = []
    total = 0
    for moment, rows in answer:
        total += rows
        steps.append(Point(float(moment) - ahead, total))
    return steps


def ingest(load: Load) -> Run:
    """What the driver alone reaches with columns that are already in memory: the floor of the cost."""
    import adbc_driver_postgresql.dbapi as adbc
    import numpy as np
    import pyarrow as pa

    rows = load.records - load.warm
    ids = np.arange(rows, dtype=np.int64)
    body = pa.array(["x" * 100] * min(rows, 100_000))
    table = pa.table(
        {
            "id": ids,
            "origin": (ids % 4).astype(np.int32),
            "position": ids,
            "body": pa.chunked_array([body] * (rows // len(body) + 1)).slice(0, rows),
        }
    )
    name = f"bench_{uuid.uuid4().hex[:10]}"
    with adbc.connect(load.url) as connection, connection.cursor() as cursor:
        begin = time.monotonic()
        cursor.adbc_ingest(name, table, mode="create")
        connection.commit()
        elapsed = time.monotonic() - begin
        cursor.execute(f"DROP TABLE {name}")
        connection.commit()
    return Run(contestant="", round=0, figures={ROWS: rows / elapsed})
