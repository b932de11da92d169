"""One body for every sink that has columns: `evolve` adds what rows bring, before them or with them, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import atonce
from atonce.errors import UsageError
from atonce.plugins import plugins
from tests.contract.connectors.sql.database import Crash, Database, batch, crash_at, identity, progress
from tests.contract.connectors.systems import IcebergSystem, fresh_name

WITH_COLUMNS = [
    name
    for name, plugin in plugins("sink").items()
    if plugin.package == "atonce" and "evolve" in plugin.load().__dataclass_fields__
]


@dataclass(frozen=True, slots=True)
class Table:
    sink: Callable[..., Any]
    rows: Callable[[], list[tuple[Any, ...]]]
    """All rows by id: id, and then what else there is."""
    in_the_batch: bool
    """The column is added in the transaction of the batch; else right before it."""
    versions: Callable[[], list[Any]] | None = None
    """The columns that the table had, version by version."""


def _sql(kind: str, request: pytest.FixtureRequest, name: str) -> Table:
    scratch = request.getfixturevalue("scratch")
    where = request.getfixturevalue("postgres_url") if kind == "postgres" else str(scratch / f"out.{kind}")
    database = Database(kind=kind, where=where)

    def versions() -> list[Any]:
        if not database.has("atonce_schema"):
            return []
        found = database.rows(f"SELECT columns FROM atonce_schema WHERE table_name = '{name}' ORDER BY version")
        return [list(json.loads(row[0])) for row in found]

    return Table(
        lambda **options: database.sink(name, **options),
        lambda: database.rows(f"SELECT * FROM {name} ORDER BY id") if database.has(name) else [],
        in_the_batch=True,
        versions=versions,
    )


def _delta(request: pytest.FixtureRequest, name: str) -> Table:
    from deltalake import DeltaTable

    path = request.getfixturevalue("scratch") / name

    def rows() -> list[tuple[Any, ...]]:
        if not DeltaTable.is_deltatable(str(path)):
            return []
        found = DeltaTable(str(path)).to_pyarrow_table().sort_by("id").to_pylist()
        return [tuple(row.values()) for row in found]

    return Table(lambda **options: atonce.Delta(path, **options), rows, in_the_batch=False)


def _iceberg(request: pytest.FixtureRequest, name: str) -> Table:
    system = IcebergSystem(request.getfixturevalue("scratch"))

    def rows() -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in sorted(system.read(name), key=lambda row: row["id"])]

    return Table(lambda **options: system.sink(name, **options), rows, in_the_batch=False)


@pytest.fixture(params=WITH_COLUMNS)
def table(request: pytest.FixtureRequest) -> Table:
    name = fresh_name()
    lakes = {"delta": _delta, "iceberg": _iceberg}
    return lakes[request.param](request, name) if request.param in lakes else _sql(request.param, request, name)


def ids(spark: Any, number: int, more: str = "") -> Any:
    return spark.range(number, number + 1).selectExpr("id", *([more] if more else []))


def test_missing_column_is_added_with_the_batch_that_brings_it_and_is_null_before(table: Table, spark: Any) -> None:
    who = identity(fresh_name())
    sink = table.sink(evolve=True).open(who, spark)
    try:
        sink.claim()
        sink.output_and_progress(batch(ids(spark, 0), 0), progress(who, 0))
        wider = ids(spark, 1, "concat('note ', id) AS note")
        sink.accepts(wider.schema)
        assert table.rows() == [(0,)], "to ask changes nothing"
        with pytest.raises(Crash):
            sink.output_and_progress(batch(wider, 1, crash_at("committing")), progress(who, 1))
        assert table.rows() == ([(0,)] if table.in_the_batch else [(0, None)]), "no row without its commit"
        sink.output_and_progress(batch(wider, 1), progress(who, 1))
        sink.output_and_progress(batch(ids(spark, 2), 2), progress(who, 2))
    finally:
        sink.close()
    assert table.rows() == [(0, None), (1, "note 1"), (2, None)], "narrower rows still fit"
    assert table.versions is None or table.versions() == [["id"], ["id", "note"]]


def test_type_that_does_not_hold_the_rows_is_refused_with_both_types_and_nothing_changes(
    table: Table, spark: Any
) -> None:
    who = identity(fresh_name())
    sink = table.sink(evolve=True).open(who, spark)
    try:
        sink.claim()
        sink.output_and_progress(batch(spark.range(1).selectExpr("id", "1 AS size"), 0), progress(who, 0))
        other = spark.range(1, 2).selectExpr("id", "'large' AS size", "1 AS more")
        with pytest.raises(UsageError, match=r"(?i)column size.*(string|text|varchar).*int"):
            sink.output_and_progress(batch(other, 1), progress(who, 1))
    finally:
        sink.close()
    assert [row[0] for row in table.rows()] == [0]


def test_without_the_word_a_new_column_is_refused_by_name(table: Table, spark: Any) -> None:
    who = identity(fresh_name())
    sink = table.sink().open(who, spark)
    try:
        sink.claim()
        sink.output_and_progress(batch(ids(spark, 0), 0), progress(who, 0))
        with pytest.raises(UsageError, match=r"note.*evolve: true"):
            sink.output_and_progress(batch(ids(spark, 1, "'x' AS note"), 1), progress(who, 1))
    finally:
        sink.close()
    assert table.rows() == [(0,)]
