"""What mutants are put to the test with: small pipelines, each with the mechanism that some of them break."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import atonce

from .catalogue import On

COPY = "SELECT key, CAST(value AS STRING) AS value FROM input"
SQL: dict[On, str] = {
    On.COPY: COPY,
    On.WHOLE: "SELECT key, value, headers, timestamp FROM input",
    On.COLUMNS: (
        "SELECT key, concat(CAST(value AS STRING), '|', coalesce(CAST(key AS STRING), 'none')) AS value "
        "FROM input WHERE 'k5' >= CAST(key AS STRING)"
    ),
    # Each alone: a function that stops at odd text would keep it from the other.
    On.UPPER: "SELECT key, upper(CAST(value AS STRING)) AS value FROM input",
    On.LENGTH: (
        "SELECT key, concat(CAST(value AS STRING), '|', CAST(length(CAST(value AS STRING)) AS STRING)) AS value "
        "FROM input"
    ),
    On.ROWS: "SELECT key, concat_ws('', CAST(value AS STRING)) AS value FROM input",
    On.COUNTS: "SELECT key, CAST(count(*) AS STRING) AS value FROM input GROUP BY key",
    On.SQLITE: COPY,
    On.POSTGRES: COPY,
    On.DELTA: COPY,
    On.ICEBERG: COPY,
}
COPIER = (
    f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('copier.py')))} "
    "{servers} {input} {output} {group}"
)


def pipeline(on: On, level: str) -> atonce.Pipeline:
    # In rows a range is cut into several tasks, however short it is.
    source = atonce.Kafka("in", headers=on is On.WHOLE, options={"minPartitions": "5"} if on is On.ROWS else {})
    target: object = atonce.Kafka("out")
    if on is On.SQLITE:
        target = atonce.SQLite("out.db", "copied")
    elif on is On.POSTGRES:
        target = atonce.Postgres("postgresql://localhost/out", table="copied", create=True)
    elif on is On.DELTA:
        target = atonce.Delta("copied")
    elif on is On.ICEBERG:
        target = atonce.Iceberg("shop.copied", {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse"})
    mode = "update" if on is On.COUNTS else None
    return atonce.Pipeline("mutant", guarantee=level).read(source).transform(SQL[on]).write(target, mode=mode)
