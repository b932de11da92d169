"""The table does not depend on where batches were cut: one input, 50 cuts and interleavings, one table."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.connectors.cuts import COLUMNS, Cut, Row, through_duckdb, through_postgres, through_sqlite

CUTS = 50
PLACED = ("partition", "offset")

Options = dict[str, Any]
WAYS: dict[str, Options] = {
    "deleting": {"order_by": "at", "delete": "gone"},
    "marking": {"order_by": "at", "soft_delete": "gone"},
    "keeping": {"order_by": "at"},
}


def fields(draw: Any) -> Row:
    return {
        "key": draw(st.sampled_from(["a", "b", "B", "ä"])),
        "at": draw(st.integers(0, 6)),
        "value": draw(st.sampled_from(["x", "y", "Z", "é", "bad", None])),
        "gone": draw(st.sampled_from([True, False, False, None])),
    }


@st.composite
def inputs(draw: Any) -> list[list[Row]]:
    """Two input partitions."""
    sizes = draw(st.tuples(st.integers(5, 12), st.integers(0, 12)))
    return [[{**fields(draw), "partition": p, "offset": o} for o in range(n)] for p, n in enumerate(sizes)]


def cut(partitions: list[list[Row]], seed: int) -> Cut:
    """Any batches that keep each partition's order."""
    rng = random.Random(seed)
    count = rng.randint(1, 8)
    ends = [sorted(rng.randint(0, len(rows)) for _ in range(count - 1)) for rows in partitions]
    bounds = [[0, *each, len(rows)] for each, rows in zip(ends, partitions, strict=True)]
    return [[rows[b[n] : b[n + 1]] for rows, b in zip(partitions, bounds, strict=True)] for n in range(count)]


def expected(partitions: list[list[Row]], way: str, placed: bool) -> list[tuple[Any, ...]]:
    """What a reader of the whole input would say: the largest of each key."""
    newest: dict[str, tuple[tuple[Any, ...], Row]] = {}
    for row in (row for rows in partitions for row in rows):
        gone = bool(row["gone"]) and way != "keeping"
        if row["value"] == "bad" and not (gone and way == "deleting"):
            continue  # the table refuses it
        place = (row["partition"], row["offset"]) if placed else ()
        value = row["value"]
        rank = (row["at"], *place, gone, value is not None, (value or "").encode())
        if row["key"] not in newest or rank > newest[row["key"]][0]:
            newest[row["key"]] = (rank, {**row, "gone": gone})
    kept = [row for _, row in newest.values() if not (row["gone"] and way == "deleting")]
    columns = ["key", "at", "value", *(["gone"] if way == "marking" else []), *(PLACED if placed else [])]
    return sorted(tuple(row[name] for name in columns) for row in kept)


def table(name: str, way: str, placed: bool) -> tuple[list[str], str]:
    """The columns of the rows, and the table they go into."""
    more = ", gone boolean" if way == "marking" else ""
    more += ', partition int, "offset" bigint' if placed else ""
    names = ["key", "at", "value", *(["gone"] if way != "keeping" else []), *(PLACED if placed else [])]
    return names, f"CREATE TABLE {name} ({COLUMNS.replace('{more}', more)})"


def holds(
    run: Callable[[Cut], list[Any]], partitions: list[list[Row]], way: str, placed: bool, cuts: int = CUTS
) -> None:
    wanted = expected(partitions, way, placed)
    for seed in range(cuts):
        made = cut(partitions, seed)
        assert run(made) == wanted, made


@pytest.mark.parametrize("placed", [True, False], ids=["with positions", "without"])
@pytest.mark.parametrize("way", list(WAYS))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(partitions=inputs())
def test_sqlite_holds_the_same_table_whatever_the_cuts(way: str, placed: bool, partitions: list[list[Row]]) -> None:
    names, create = table("t", way, placed)
    holds(through_sqlite(names, create, WAYS[way]), partitions, way, placed)


@pytest.mark.parametrize(("way", "placed"), [("deleting", True), ("marking", False), ("keeping", True)])
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(partitions=inputs())
def test_duckdb_holds_the_same_table_whatever_the_cuts(way: str, placed: bool, partitions: list[list[Row]]) -> None:
    """Without dead letters no row of the input may be refused."""
    fine = [[{**row, "value": "w" if row["value"] == "bad" else row["value"]} for row in rows] for rows in partitions]
    names, create = table("t", way, placed)
    holds(through_duckdb(names, create, WAYS[way]), fine, way, placed, cuts=10)


@pytest.mark.parametrize(
    ("way", "placed"), [("deleting", True), ("deleting", False), ("marking", True), ("keeping", False)]
)
def test_postgres_holds_the_same_table_whatever_the_cuts(postgres_url: str, way: str, placed: bool) -> None:
    name = f"cuts_{uuid.uuid4().hex[:12]}"
    names, create = table(name, way, placed)
    run = through_postgres(postgres_url, name, names, create, WAYS[way])

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(partitions=inputs())
    def same(partitions: list[list[Row]]) -> None:
        holds(run, partitions, way, placed)

    same()
