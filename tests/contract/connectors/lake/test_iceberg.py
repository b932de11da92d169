"""An Iceberg table holds to its fence and resolves every doubt: zombies, foreign writers, lost answers, rollbacks."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate

import atonce
from atonce.connectors.lake.claim import Claim
from atonce.connectors.lake.iceberg import commit as step
from atonce.connectors.lake.iceberg.table import IcebergSnapshot
from atonce.delivery.events import Event, Step
from atonce.errors import AttemptAborted, LedgerMismatch, ReplacedError, UndeliverableRow, UsageError
from tests.contract.connectors.sql.database import Crash, batch, crash_at, identity, progress
from tests.contract.connectors.systems import IcebergSystem

NAME = "orders"
TAG = f"atonce-{NAME}"


@pytest.fixture
def shop(scratch: Path) -> IcebergSystem:
    return IcebergSystem(scratch)


@pytest.fixture
def ten(spark: Any) -> Callable[[int], Any]:
    return lambda number: spark.range(number * 10, number * 10 + 10, 1, 2).selectExpr("id", "'x' AS body")


def opened(shop: IcebergSystem, spark: Any, **options: Any) -> tuple[Any, Any]:
    """(who, an open sink that has claimed)."""
    who = identity(NAME)
    sink = shop.sink(NAME, **options).open(who, spark)
    sink.claim()
    return who, sink


def at(moment: Step, act: Callable[[], Any]) -> Callable[..., None]:
    """A watcher that acts once, at this step."""
    left = [act]

    def watch(event: Event) -> None:
        if event.step is moment and left:
            left.pop()()

    return watch


def foreign(shop: IcebergSystem, *found: int) -> None:
    rows = pa.table({"id": pa.array(found, pa.int64()), "body": ["theirs"] * len(found)})
    shop.table(NAME).append(rows)


def tagged(shop: IcebergSystem) -> int:
    found: int = shop.table(NAME).metadata.refs[TAG].snapshot_id
    return found


@pytest.mark.parametrize("moment", [Step.OUTPUT_DONE, Step.COMMITTING])
def test_replaced_while_it_delivers_it_commits_nothing_however_fresh_its_snapshot(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any], moment: Step
) -> None:
    old, first = opened(shop, spark)
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    newcomers: list[Any] = []
    with pytest.raises(ReplacedError):
        first.output_and_progress(
            batch(ten(1), 1, at(moment, lambda: newcomers.append(opened(shop, spark)))), progress(old, 1)
        )
    claimed = tagged(shop)
    for again in (
        lambda: first.output_and_progress(batch(ten(1), 1), progress(old, 1)),
        first.check_claim,
        first.claim,
    ):
        with pytest.raises(ReplacedError):
            again()
    assert tagged(shop) == claimed
    [(new, second)] = newcomers
    second.output_and_progress(batch(ten(1), 1), progress(new, 1))
    assert shop.ids(NAME) == list(range(20))


def test_a_zombie_whose_main_came_back_by_a_rollback_meets_the_tag(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    """The library's own transaction would keep one assertion of a kind, that of main, and let it in."""
    old, first = opened(shop, spark)
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    before = tagged(shop)

    def claim_and_roll_back() -> None:
        opened(shop, spark)
        shop.table(NAME).manage_snapshots().rollback_to_snapshot(before).commit()

    with pytest.raises(ReplacedError):
        first.output_and_progress(batch(ten(1), 1, at(Step.COMMITTING, claim_and_roll_back)), progress(old, 1))
    assert shop.table(NAME).metadata.refs["main"].snapshot_id == before and tagged(shop) != before
    assert shop.ids(NAME) == list(range(10))


def test_without_the_fence_a_zombie_gets_through(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutants that the tests before this one are there for: no comparison, and no assertion of the tag."""
    old, first = opened(shop, spark)
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    opened(shop, spark)
    monkeypatch.setattr(Claim, "standing", lambda self: self._look()[0])
    first.output_and_progress(batch(ten(1), 1), progress(old, 1))
    assert shop.ids(NAME) == list(range(20))


def test_progress_outside_the_commit_doubles_the_batch_after_a_crash_in_between(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant that the kills at each step are there for."""
    who, sink = opened(shop, spark)
    whole = IcebergSnapshot.commit

    def in_two(self: IcebergSnapshot, entry: Any, files: Any) -> None:
        if files:
            whole(self, None, files)
            raise Crash("between the two")
        whole(self, entry, files)

    monkeypatch.setattr(IcebergSnapshot, "commit", in_two)
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    monkeypatch.setattr(IcebergSnapshot, "commit", whole)
    new, second = opened(shop, spark)
    second.output_and_progress(batch(ten(0), 0), progress(new, 0))
    assert shop.ids(NAME) == sorted([*range(10), *range(10)])


def test_the_one_private_method_of_the_library_does_what_is_built_on_it(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    table = shop.table(NAME)
    snapshot, updates, requirements = step.appended(table, [], {step.ENTRY: "x"})
    assert [type(each) for each in updates] == [AddSnapshotUpdate, SetSnapshotRefUpdate]
    added, ref = updates
    assert (added.snapshot.snapshot_id, added.snapshot.summary[step.ENTRY]) == (snapshot, "x")
    assert (ref.ref_name, ref.snapshot_id) == ("main", snapshot)
    main = table.metadata.refs["main"].snapshot_id
    assert requirements == (AssertRefSnapshotId(ref="main", snapshot_id=main),)
    assert shop.table(NAME).metadata_location == table.metadata_location, "nothing was committed by it"
    moved = (*updates, *step.moved(TAG, snapshot))
    with pytest.raises(CommitFailedException, match=TAG):
        step.send(table, (*requirements, AssertRefSnapshotId(ref=TAG, snapshot_id=1)), moved)


def test_an_append_of_somebody_else_in_between_is_no_trouble(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    sink.output_and_progress(batch(ten(1), 1, at(Step.COMMITTING, lambda: foreign(shop, 900))), progress(who, 1))
    shop.table(NAME).delete("id = 3")
    sink.output_and_progress(batch(ten(2), 2), progress(who, 2))
    assert shop.ids(NAME) == [0, 1, 2, *range(4, 30), 900]
    assert sink.peek().batch_id == 2


def test_a_column_that_somebody_adds_in_between_makes_the_batch_run_again(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))

    def widen() -> None:
        with shop.table(NAME).update_schema() as update:
            update.union_by_name(pa.schema([("more", pa.int64())]))

    with pytest.raises(AttemptAborted, match="columns or rules changed"):
        sink.output_and_progress(batch(ten(1), 1, at(Step.OUTPUT_DONE, widen)), progress(who, 1))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert shop.ids(NAME) == list(range(20))


@pytest.mark.parametrize("lost", [RuntimeError, CommitFailedException, Crash])
def test_a_commit_whose_answer_was_lost_counts_once(
    shop: IcebergSystem,
    spark: Any,
    ten: Callable[[int], Any],
    monkeypatch: pytest.MonkeyPatch,
    lost: type[BaseException],
) -> None:
    """A conflict too: it may be our own request, repeated on its way, that met itself."""
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    send = step.send

    def send_and_lose(*given: Any) -> None:
        send(*given)
        monkeypatch.setattr(step, "send", send)
        raise lost("the answer was lost")

    monkeypatch.setattr(step, "send", send_and_lose)
    if lost is Crash:  # the process goes on all the same: whatever interrupted it, the next delivery asks first
        with pytest.raises(Crash):
            sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    sink.output_and_progress(batch(ten(2), 2), progress(who, 2))
    assert shop.ids(NAME) == list(range(30))


def test_a_commit_that_is_delayed_past_its_resolution_never_arrives(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    send = step.send
    delayed: list[Any] = []

    def hold(*given: Any) -> None:
        delayed.append(given)
        monkeypatch.setattr(step, "send", send)
        raise RuntimeError("no answer in time")

    monkeypatch.setattr(step, "send", hold)
    with pytest.raises(AttemptAborted, match="nothing of it is in"):
        sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    with pytest.raises(CommitFailedException):
        send(*delayed[0])
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert shop.ids(NAME) == list(range(20))


def test_a_catalogue_that_went_back_is_noticed_and_the_claim_renewed_on_it(
    shop: IcebergSystem, scratch: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    shutil.copyfile(scratch / "catalog.db", scratch / "copy.db")
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    (scratch / "copy.db").rename(scratch / "catalog.db")
    with pytest.raises(LedgerMismatch, match="went back"):
        sink.output_and_progress(batch(ten(2), 2), progress(who, 2))
    again = shop.sink(NAME).open(dataclasses.replace(who, claimed=True, replaced=sink.replaced), spark)
    found = again.claim()
    assert found is not None and found.batch_id == 0
    again.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert shop.ids(NAME) == list(range(20))


def test_a_tag_that_somebody_moved_and_a_table_that_is_gone_are_refused(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    foreign(shop, 900)
    table = shop.table(NAME)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, TAG).commit()
    with pytest.raises(LedgerMismatch, match="none of ours"):
        sink.check_claim()
    table.catalog.drop_table(f"shop.{NAME}")
    with pytest.raises(LedgerMismatch, match="nothing of orders"):
        sink.check_claim()


def test_snapshots_beyond_those_to_keep_go_and_progress_and_rows_stay(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(shop, spark, keep_snapshots=5)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    foreign(shop, 900)
    for turn in range(2, 12):
        sink.progress(progress(who, 0, sequence=turn))
    table = shop.table(NAME)
    assert len(table.metadata.snapshots) <= 5 + 2, "those to keep, the newest, and the foreign one"
    lists = len(list((shop.folder / "warehouse" / "shop" / NAME / "metadata").glob("snap-*.avro")))
    assert lists == len(table.metadata.snapshots)
    assert shop.ids(NAME) == [*range(10), 900] and sink.peek().sequence == 11


def test_rows_are_split_by_columns_and_by_transforms(shop: IcebergSystem, spark: Any) -> None:
    who, sink = opened(shop, spark, partition_by=["kind", "day(at)", "bucket(4, id)"])
    rows = spark.range(0, 12, 1, 2).selectExpr(
        "id",
        "timestamp_micros(1768000000000000 + id * 43200000000) AS at",
        "nullif(concat('a b/', id % 3), 'a b/2') AS kind",
    )
    sink.output_and_progress(batch(rows, 0), progress(who, 0))
    table = shop.table(NAME)
    assert [str(field.transform) for field in table.spec().fields] == ["identity", "day", "bucket[4]"]
    expected = {row["id"]: row["kind"] for row in rows.toArrow().to_pylist()}
    assert {row["id"]: row["kind"] for row in shop.read(NAME)} == expected
    assert table.scan(row_filter="kind = 'a b/1'").to_arrow().num_rows == 4
    one = table.scan(row_filter="id = 7")
    assert one.to_arrow().column("id").to_pylist() == [7]
    assert len(list(one.plan_files())) < len(list(table.scan().plan_files())), "files are found by their partitions"
    atonce.Iceberg(f"shop.{NAME}", shop.catalog, partition_by=["kind", "day(at)", "bucket(4, id)"]).check()
    with pytest.raises(UsageError, match=r"partitioned by kind, day\(at\), bucket\(4, id\)"):
        atonce.Iceberg(f"shop.{NAME}", shop.catalog, partition_by="kind").check()


def test_every_type_of_spark_comes_back_as_it_went_in(shop: IcebergSystem, spark: Any) -> None:
    who, sink = opened(shop, spark)
    rows = spark.range(1).selectExpr(
        "id", "CAST(7 AS TINYINT) AS a", "CAST(7 AS SMALLINT) AS b", "CAST(1.5 AS FLOAT) AS c", "2.5D AS d",
        "CAST('3.25' AS DECIMAL(10, 2)) AS e", "true AS f", "X'00FF' AS g", "date'2026-02-03' AS h",
        "timestamp'2026-02-03 04:05:06.789' AS i", "timestamp_ntz'2026-02-03 04:05:06.789' AS j",
        "array(1, 2) AS k", "named_struct('x', 1, 'y', array('z')) AS l", "map('m', 1) AS m", "CAST(null AS STRING) AS n",
    )  # fmt: skip
    for turn in range(2):  # into a table that gets its columns, and into one that has them
        sink.output_and_progress(batch(rows, turn), progress(who, turn))
    expected = rows.toArrow().to_pylist()[0]
    assert [{**row, "i": row["i"].timestamp(), "m": list(row["m"])} for row in shop.read(NAME)] == [
        {**expected, "i": expected["i"].timestamp(), "m": list(expected["m"])}
    ] * 2


def test_rows_that_do_not_fit_are_refused_by_column(shop: IcebergSystem, spark: Any) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(spark.range(1).selectExpr("id", "'x' AS body"), 0), progress(who, 0))
    for select, told in (
        (["id", "'x' AS body", "1 AS more"], "column more"),
        (["CAST(id AS STRING) AS id", "'x' AS body"], "column id of the rows is string"),
    ):
        with pytest.raises(UsageError, match=told):
            sink.accepts(spark.range(1).selectExpr(*select).schema)
    with pytest.raises(UndeliverableRow, match="body"):
        sink.output_and_progress(
            batch(spark.range(5).selectExpr("id", "CAST(X'FF' AS STRING) AS body"), 1), progress(who, 1)
        )
    assert shop.ids(NAME) == [0]


def test_files_of_a_failed_attempt_stay_unseen(shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]) -> None:
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(1), 1, crash_at("output-done")), progress(who, 1))
    data = shop.folder / "warehouse" / "shop" / NAME / "data"
    assert len(list(data.glob("*.parquet"))) == 4 and shop.ids(NAME) == list(range(10))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert shop.ids(NAME) == list(range(20))


def test_tables_that_cannot_be_had_are_refused_in_one_line(shop: IcebergSystem, scratch: Path) -> None:
    nowhere = {"type": "sql", "uri": f"sqlite:///{scratch}/a/catalog.db", "warehouse": str(scratch)}
    for make, told in (
        (lambda: atonce.Iceberg("orders", shop.catalog), r"NAMESPACE\.NAME"),
        (lambda: atonce.Iceberg("shop.orders"), "catalog"),
        (lambda: shop.sink(NAME, mode="upsert"), "needs key="),
        (lambda: shop.sink(NAME, create=False).check(), "does not exist"),
        (lambda: atonce.Iceberg("shop.orders", nowhere), "does not exist"),
        (
            lambda: atonce.Iceberg("shop.orders", {"type": "rest", "uri": "http://127.0.0.1:9"}).check(),
            "cannot be asked",
        ),
        (lambda: atonce.Iceberg("shop.orders", {"type": "no-such"}).check(), "cannot be asked"),
    ):
        with pytest.raises(UsageError, match=told) as raised:
            make()
        assert "\n" not in str(raised.value)
    assert not (scratch / "catalog.db").exists(), "a look makes nothing"


def test_clean_removes_files_of_dead_attempts_and_never_those_of_a_live_one(
    shop: IcebergSystem, spark: Any, ten: Callable[[int], Any]
) -> None:
    table = shop.sink(NAME)
    who, sink = opened(shop, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(1), 1, crash_at("output-done")), progress(who, 1))
    assert table.orphans(NAME) == [], "of its own epoch: nobody can tell that it died"
    new, second = opened(shop, spark)
    live: list[Any] = []
    look = at(Step.OUTPUT_DONE, lambda: live.extend([table.orphans(NAME), table.remove_orphans(table.orphans(NAME))]))
    second.output_and_progress(batch(ten(1), 1, look), progress(new, 1))
    assert len(live[0]) == 2 and table.orphans(NAME) == []
    assert shop.ids(NAME) == list(range(20))
    shop.table(NAME).delete("id >= 0")
    opened(shop, spark)
    assert table.orphans(NAME) == [], "what an older snapshot shows is still read"
