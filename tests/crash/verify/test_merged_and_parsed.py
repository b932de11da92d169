"""Pipelines whose steps decide what becomes of a record: merged by key, parsed, taken as a change, put aside."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.verify.checks.oracle import UNKNOWN
from atonce.verify.session import Options, verify_pipeline
from tests.crash.verify.test_pipelines import told

SCHEMA = "id string, key string, n bigint, amount bigint"
ROWS = "SELECT value.id, value.key, value.n, value.amount FROM input"
UNCHECKED = UNKNOWN.rstrip()


def read() -> Any:
    return atonce.Pipeline("orders").read(atonce.Kafka("in"))


def upserted() -> Any:
    """The last of every key, in input order."""
    rows = "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v FROM input"
    return read().transform(rows).write(atonce.SQLite("out.db", table="orders", mode="upsert", key="k"))


def newest() -> Any:
    sink = atonce.SQLite("out.db", table="orders", mode="upsert", key="key", order_by="amount")
    return read().parse("json", SCHEMA).transform(ROWS).write(sink)


def parsed() -> Any:
    return read().parse("json", SCHEMA).transform(ROWS).write(atonce.SQLite("out.db", table="orders"))


def put_aside() -> Any:
    return read().parse("json", SCHEMA).transform(ROWS).write(
        atonce.SQLite("out.db", table="orders", on_error="dead-letter")
    )  # fmt: skip


def put_aside_in_kafka() -> Any:
    rows = "SELECT CAST(value.key AS BINARY) AS key, to_json(value) AS value FROM input"
    return (
        read()
        .parse("json", SCHEMA)
        .transform(rows)
        .write(atonce.Kafka("out", on_error="dead-letter", dead_letter="out-dead"))
    )


def changes() -> Any:
    return read().cdc("debezium", "id bigint, name string", order="source.lsn bigint").write(
        atonce.SQLite("out.db", table="customers", mode="upsert", key="id", order_by="lsn", delete="deleted")
    )  # fmt: skip


def change_lines(path: Path) -> Path:
    """Changes as Debezium writes them, keyed by the row's key as Debezium does."""
    rng, table, lines = random.Random(3), set[int](), []
    for lsn in range(90):
        key = rng.randrange(30)
        before = {"id": key, "name": "before"} if key in table else None
        gone = before is not None and rng.random() < 0.3
        table = table - {key} if gone else table | {key}
        after = None if gone else {"id": key, "name": f"name {lsn}"}
        op = "d" if gone else "u" if before else "c"
        said = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
        lines.append(f"{key}\t{json.dumps(said)}\n")
    file = path / "changes.tsv"
    file.write_text("".join(lines))
    return file


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (upserted, "the row that stays of every key"),
        (newest, "the row that stays of every key"),
        (parsed, "every row"),
        (put_aside, "every row"),
        (put_aside_in_kafka, "every record"),
        (changes, "the row that stays of every key"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_its_clean_run_is_compared_whole_and_kept_under_a_kill(
    make: Callable[[], Any], said: str, tmp_path: Path
) -> None:
    """What its steps put aside in a stream is left out of the plain batch by the same steps."""
    given = change_lines(tmp_path) if make is changes else None
    options = Options(faults="F7/written-not-committed", seed=7, records=60, records_file=given)
    verdict = verify_pipeline(make(), options)
    assert verdict.exit_code() == 0, told(verdict)
    assert len(verdict.ran) == 2, told(verdict)
    assert said in verdict.oracle and not verdict.oracle.startswith(UNCHECKED), f"{verdict.oracle}\n{verdict.not_fed}"
