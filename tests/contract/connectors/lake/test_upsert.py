"""Upserts into tables of files: the newest row of a key stays, whatever the cuts, with the progress, in one step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import atonce
from atonce.delivery.events import Event, Step
from atonce.errors import AttemptAborted, RefusedError, ReplacedError, UsageError
from tests.contract.connectors.sql.database import batch, identity, progress
from tests.contract.connectors.systems import IcebergSystem

NAME = "orders"
THEIRS = pa.table({"id": pa.array([2], pa.int64()), "version": pa.array([1], pa.int64()), "body": ["theirs"]})


@dataclass(frozen=True, slots=True)
class Lake:
    kind: str
    folder: Path

    def sink(self, table: str = NAME, **options: Any) -> Any:
        if self.kind == "delta":
            return atonce.Delta(self.folder / table, mode="upsert", key="id", **options)
        return IcebergSystem(self.folder).sink(table, mode="upsert", key="id", **options)

    def kept(self, table: str = NAME) -> list[tuple[Any, ...]]:
        if self.kind == "delta":
            rows = DeltaTable(str(self.folder / table)).to_pyarrow_table().to_pylist()
        else:
            rows = IcebergSystem(self.folder).read(table)
        return sorted((row["id"], row["version"], row["body"]) for row in rows)

    def foreign(self) -> None:
        if self.kind == "delta":
            write_deltalake(str(self.folder / NAME), THEIRS, mode="append")
        else:
            IcebergSystem(self.folder).table(NAME).append(THEIRS)

    def staged(self) -> int:
        """Files that the table does not show."""
        if self.kind == "delta":
            return len([file for file in (self.folder / NAME).glob("*.parquet") if file.name.startswith(NAME)])
        table = IcebergSystem(self.folder).table(NAME)
        seen = {
            entry.data_file.file_path
            for each in table.snapshots()
            for m in each.manifests(table.io)
            for entry in m.fetch_manifest_entry(table.io, discard_deleted=False)
        }
        return len(list((self.folder / "warehouse" / "shop" / NAME / "data").glob("*.parquet"))) - len(seen)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, scratch: Path) -> Lake:
    return Lake(request.param, scratch)


def opened(lake: Lake, spark: Any, table: str = NAME, **options: Any) -> tuple[Any, Any]:
    who = identity(NAME)
    sink = lake.sink(table, **options).open(who, spark)
    sink.claim()
    return who, sink


def at(moment: Step, act: Callable[[], Any]) -> Callable[..., None]:
    left = [act]

    def watch(event: Event) -> None:
        if event.step is moment and left:
            left.pop()()

    return watch


def versions(spark: Any, *rows: tuple[int, int, str]) -> Any:
    """Rows of (id, version, body), in this order in one partition."""
    return spark.createDataFrame([*rows], "id BIGINT, version BIGINT, body STRING").coalesce(1)


def test_the_newest_row_of_a_key_stays_and_a_batch_that_changes_none_still_moves_progress(
    lake: Lake, spark: Any
) -> None:
    """Delta's library makes no commit of a merge that changes nothing: progress would stay behind."""
    who, sink = opened(lake, spark, order_by="version", partition_by="body")
    given = [
        [(1, 5, "a"), (1, 7, "b"), (2, 1, "c"), (1, 6, "late")],
        [(1, 6, "late"), (2, 2, "d"), (3, 1, "new"), (3, 1, "new")],
        [(1, 1, "older"), (3, 1, "new")],
    ]
    for turn, rows in enumerate(given):
        sink.output_and_progress(batch(versions(spark, *rows), turn), progress(who, turn))
        assert sink.peek().batch_id == turn
    assert lake.kept() == [(1, 7, "b"), (2, 2, "d"), (3, 1, "new")]
    assert lake.staged() == 0, "what was merged is gone"


def test_one_table_is_left_whatever_the_cuts(lake: Lake, spark: Any) -> None:
    rows = [(key, version, body) for key, version, body in itertools.product(range(3), range(3), ("x", "y"))]
    for seed in range(2):
        draw = random.Random(seed)
        draw.shuffle(rows)
        cut = draw.randrange(1, len(rows))
        who, sink = opened(lake, spark, f"t{seed}", order_by="version")
        for turn, some in enumerate((rows[:cut], rows[cut:])):
            sink.output_and_progress(batch(versions(spark, *some), turn), progress(who, turn))
        assert lake.kept(f"t{seed}") == [(key, 2, "y") for key in range(3)]


def test_it_is_computed_again_after_a_commit_of_somebody_else_and_never_by_a_zombie(lake: Lake, spark: Any) -> None:
    who, sink = opened(lake, spark)
    sink.output_and_progress(batch(versions(spark, (1, 1, "a"), (1, 2, "b")), 0), progress(who, 0))
    with pytest.raises(AttemptAborted):
        sink.output_and_progress(
            batch(versions(spark, (2, 3, "ours")), 1, at(Step.COMMITTING, lake.foreign)), progress(who, 1)
        )
    sink.output_and_progress(batch(versions(spark, (2, 3, "ours")), 1), progress(who, 1))
    assert lake.kept() == [(1, 2, "b"), (2, 3, "ours")]
    taken = at(Step.COMMITTING, lambda: opened(lake, spark))
    with pytest.raises(ReplacedError):
        sink.output_and_progress(batch(versions(spark, (2, 4, "zombie")), 2, taken), progress(who, 2))
    assert lake.kept() == [(1, 2, "b"), (2, 3, "ours")]


def test_more_rows_than_said_or_rows_in_no_order_are_refused(lake: Lake, spark: Any) -> None:
    who, sink = opened(lake, spark, max_upsert_rows=5)
    rows = spark.range(6).selectExpr("id", "1 AS version", "'x' AS body")
    with pytest.raises(RefusedError, match="max_upsert_rows is 5"):
        sink.output_and_progress(batch(rows, 0), progress(who, 0))
    with pytest.raises(RefusedError, match="order"):
        sink.output_and_progress(batch(rows.repartition(3), 0, ordered=False), progress(who, 0))
    with pytest.raises(UsageError, match="id"):
        sink.accepts(spark.range(1).selectExpr("id AS other").schema)
