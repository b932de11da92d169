"""Changes of a database, in any cuts and interleavings of two partitions, give the table that they come from."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atonce.spark.steps.aside import telling
from atonce.spark.steps.cdc import Cdc
from atonce.spark.steps.parse import Parse
from tests.properties.connectors.cuts import Row, through_duckdb, through_sqlite
from tests.properties.connectors.test_cuts import cut

KEYED = pa.struct([("key", pa.string()), ("value", pa.string())])
ENVELOPE = [("before", KEYED), ("after", KEYED), ("op", pa.string()), ("source", pa.struct([("at", pa.int64())]))]
STEP = replace(
    Cdc(format="debezium", schema="key string, value string", order="source.at bigint"),
    inner=replace(Parse(format="json", schema="-"), type=pa.struct([*ENVELOPE, ("payload", pa.struct(ENVELOPE))])),
    row=KEYED,
)
TABLE = "CREATE TABLE t (key {text} PRIMARY KEY, value {text}, at bigint NOT NULL)"
NAMES = ["key", "value", "gone", "at"]


@st.composite
def histories(draw: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The changes of a table, in the order of its log, and what it holds in the end."""
    table: dict[str, str] = {}
    changes = []
    for at in range(draw(st.integers(4, 24))):
        key = draw(st.sampled_from(["a", "b", "c"]))
        before = {"key": key, "value": table[key]} if key in table else None
        if before is not None and draw(st.booleans()):
            del table[key]
            after, op = None, "d"
        else:
            table[key] = f"v{at}"
            after, op = {"key": key, "value": table[key]}, "u" if before else "c"
        change = {"op": op, "before": before, "after": after, "source": {"at": at}}
        changes.append({"payload": change} if draw(st.booleans()) else change)
    return changes, table


def rows(changes: list[dict[str, Any]]) -> list[Row]:
    """Through the step, as a source's task gives them to it."""
    count = len(changes)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([json.dumps(each).encode() for each in changes], pa.binary()),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
    }
    told: list[Any] = []
    with telling(told.extend):
        made = STEP(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))
    assert not told
    found = zip(*(made.column(name).to_pylist() for name in ("value", "deleted", "at")), strict=True)
    return [{**row, "gone": deleted, "at": at} for row, deleted, at in found]


@pytest.mark.parametrize(("through", "cuts"), [(through_sqlite, 50), (through_duckdb, 8)], ids=["sqlite", "duckdb"])
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(), seed=st.integers(0, 1000))
def test_table_is_the_one_that_the_changes_come_from(
    through: Any, cuts: int, history: tuple[list[dict[str, Any]], dict[str, str]], seed: int
) -> None:
    changes, table = history
    run = through(NAMES, TABLE, {"order_by": "at", "delete": "gone"})
    rng = random.Random(seed)
    for number in range(cuts):
        # In two partitions, some of them twice, and in another order than that of the log.
        partitions: list[list[Row]] = [[], []]
        for row in rng.sample(rows(changes + changes[::3]), len(changes) + len(changes[::3])):
            partitions[rng.randrange(2)].append(row)
        found = run(cut(partitions, number))
        assert {key: value for key, value, _ in found} == table
