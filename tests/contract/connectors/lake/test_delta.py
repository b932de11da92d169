"""A Delta table holds to its fence and resolves every doubt: zombies, foreign writers, lost answers, tables that went back."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import atonce
from atonce.connectors.lake.claim import Claim
from atonce.connectors.lake.delta import table as delta_table
from atonce.connectors.lake.plans import PlanFiles
from atonce.delivery.events import Event, Step
from atonce.errors import AttemptAborted, LedgerMismatch, RefusedError, ReplacedError, UndeliverableRow, UsageError
from atonce.guarantee import Guarantee
from tests.contract.connectors.sql.database import Crash, batch, crash_at, identity, progress

NAME = "orders"


@pytest.fixture
def path(scratch: Path) -> Path:
    return scratch / "orders"


@pytest.fixture
def ten(spark: Any) -> Callable[[int], Any]:
    return lambda number: spark.range(number * 10, number * 10 + 10, 1, 2).selectExpr("id", "'x' AS body")


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(str(path)).to_pyarrow_table().column("id").to_pylist())


def number(path: Path) -> int:
    found: int = DeltaTable(str(path)).transaction_version(NAME)
    return found


def opened(path: Path, spark: Any, **options: Any) -> tuple[Any, Any]:
    """(who, an open sink that has claimed)."""
    who = identity(NAME)
    sink = atonce.Delta(path, **options).open(who, spark)
    sink.claim()
    return who, sink


def at(step: Step, act: Callable[[], Any]) -> Callable[..., None]:
    """A watcher that acts once, at this step."""
    left = [act]

    def watch(event: Event) -> None:
        if event.step is step and left:
            left.pop()()

    return watch


def foreign(path: Path, *found: int) -> None:
    write_deltalake(
        str(path), pa.table({"id": pa.array(found, pa.int64()), "body": ["theirs"] * len(found)}), mode="append"
    )


@pytest.mark.parametrize("step", [Step.OUTPUT_DONE, Step.COMMITTING])
def test_replaced_while_it_delivers_it_commits_nothing_however_fresh_its_snapshot(
    path: Path, spark: Any, ten: Callable[[int], Any], step: Step
) -> None:
    """At output-done its next look shows the newcomer's claim; at committing the entry itself meets it."""
    old, first = opened(path, spark)
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    newcomers: list[Any] = []
    with pytest.raises(ReplacedError):
        first.output_and_progress(
            batch(ten(1), 1, at(step, lambda: newcomers.append(opened(path, spark)))), progress(old, 1)
        )
    claimed = number(path)
    for again in (
        lambda: first.output_and_progress(batch(ten(1), 1), progress(old, 1)),
        first.check_claim,
        first.claim,
    ):
        with pytest.raises(ReplacedError):
            again()
    assert number(path) == claimed, "a number lower than the table's is never written"
    [(new, second)] = newcomers
    second.output_and_progress(batch(ten(1), 1), progress(new, 1))
    assert ids(path) == list(range(20))


def test_without_the_comparison_a_zombie_with_a_fresh_snapshot_gets_through(
    path: Path, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta itself does not refuse it: the mutant that the test before this one is there for."""
    old, first = opened(path, spark)
    first.output_and_progress(batch(ten(0), 0), progress(old, 0))
    opened(path, spark)
    claimed = number(path)
    monkeypatch.setattr(Claim, "standing", lambda self: self._look()[0])
    first.output_and_progress(batch(ten(1), 1), progress(old, 1))
    assert ids(path) == list(range(20)) and number(path) < claimed


def test_an_append_of_somebody_else_in_between_is_no_trouble(path: Path, spark: Any, ten: Callable[[int], Any]) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    sink.output_and_progress(batch(ten(1), 1, at(Step.COMMITTING, lambda: foreign(path, 900))), progress(who, 1))
    sink.output_and_progress(batch(ten(2), 2), progress(who, 2))
    assert ids(path) == [*range(30), 900]


def test_a_delete_of_somebody_else_in_between_makes_the_batch_run_again(
    path: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    gone = at(Step.COMMITTING, lambda: DeltaTable(str(path)).delete("id = 3"))
    try:
        sink.output_and_progress(batch(ten(1), 1, gone), progress(who, 1))
    except AttemptAborted:
        sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert ids(path) == [0, 1, 2, *range(4, 20)]


def test_a_column_that_somebody_adds_in_between_makes_the_batch_run_again(
    path: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    wider = pa.table({"id": pa.array([900], pa.int64()), "body": ["theirs"], "more": [1]})
    widen = at(Step.OUTPUT_DONE, lambda: write_deltalake(str(path), wider, mode="append", schema_mode="merge"))
    with pytest.raises(AttemptAborted, match="columns or rules changed"):
        sink.output_and_progress(batch(ten(1), 1, widen), progress(who, 1))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert ids(path) == [*range(20), 900]


@pytest.mark.parametrize("lost", [RuntimeError, Crash])
def test_a_commit_whose_answer_was_lost_counts_once(
    path: Path, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch, lost: type[BaseException]
) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    before, send = number(path), delta_table.send

    def send_and_lose(*given: Any) -> None:
        send(*given)
        monkeypatch.setattr(delta_table, "send", send)
        raise lost("the answer was lost")

    monkeypatch.setattr(delta_table, "send", send_and_lose)
    if lost is Crash:  # the process goes on all the same: whatever interrupted it, the next delivery asks first
        with pytest.raises(Crash):
            sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert number(path) >> 32 == (before >> 32) + 1, "a claim with the next epoch resolved it"
    sink.output_and_progress(batch(ten(2), 2), progress(who, 2))
    assert ids(path) == list(range(30))


def test_a_commit_that_is_delayed_past_its_resolution_never_arrives(
    path: Path, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    send = delta_table.send
    delayed: list[Any] = []

    def hold(*given: Any) -> None:
        delayed.append(given)
        monkeypatch.setattr(delta_table, "send", send)
        raise RuntimeError("no answer in time")

    monkeypatch.setattr(delta_table, "send", hold)
    with pytest.raises(AttemptAborted, match="nothing of it is in"):
        sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    with pytest.raises(Exception, match="Concurrent transaction"):
        send(*delayed[0])
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert ids(path) == list(range(20))


def test_output_alone_that_is_in_is_not_repeated_after_a_lost_answer(
    path: Path, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    who = identity(NAME, Guarantee.AT_LEAST_ONCE)
    sink = atonce.Delta(path).open(who, spark)
    sink.claim()
    sink.output(batch(ten(0), 0))
    send = delta_table.send

    def send_and_lose(*given: Any) -> None:
        send(*given)
        monkeypatch.setattr(delta_table, "send", send)
        raise RuntimeError("the answer was lost")

    monkeypatch.setattr(delta_table, "send", send_and_lose)
    sink.output(batch(ten(1), 1))
    sink.progress(progress(who, 1))
    assert ids(path) == list(range(20))


def test_files_of_a_failed_attempt_stay_unseen(path: Path, spark: Any, ten: Callable[[int], Any]) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(1), 1, crash_at("output-done")), progress(who, 1))
    left = len(list(path.glob("*.parquet"))) - len(DeltaTable(str(path)).file_uris())
    assert left == 2 and ids(path) == list(range(10))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert ids(path) == list(range(20))


def test_a_table_that_went_back_is_noticed_and_the_claim_renewed_on_it(
    path: Path, scratch: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    shutil.copytree(path, scratch / "copy")
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    shutil.rmtree(path)
    shutil.copytree(scratch / "copy", path)
    with pytest.raises(LedgerMismatch, match="went back"):
        sink.output_and_progress(batch(ten(2), 2), progress(who, 2))
    again = atonce.Delta(path).open(dataclasses.replace(who, claimed=True, replaced=sink.replaced), spark)
    found = again.claim()
    assert found is not None and found.batch_id == 0
    again.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert ids(path) == list(range(20))


def test_a_table_that_is_gone_beside_its_progress_is_refused(path: Path, spark: Any, ten: Callable[[int], Any]) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    shutil.rmtree(path / "_delta_log")
    with pytest.raises(LedgerMismatch, match="is gone"):
        sink.check_claim()
    with pytest.raises(LedgerMismatch, match="is gone"):
        opened(path, spark)


def test_before_there_is_a_table_the_newest_claim_counts_as_well(
    path: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    old, first = opened(path, spark)
    first.progress(progress(old, -1, sequence=1))
    new, second = opened(path, spark)
    for act in (
        lambda: first.progress(progress(old, 0, sequence=2)),
        lambda: first.output_and_progress(batch(ten(0), 0), progress(old, 0)),
    ):
        with pytest.raises(ReplacedError, match=new.instance):
            act()
    assert not DeltaTable.is_deltatable(str(path))
    second.output_and_progress(batch(ten(0), 0), progress(new, 0, sequence=2))
    assert ids(path) == list(range(10))


def test_plan_files_of_long_ago_go_and_the_one_that_counts_stays(path: Path, spark: Any) -> None:
    who, sink = opened(path, spark)
    for turn in range(1, 150):
        sink.progress(progress(who, -1, sequence=turn))
    plans = PlanFiles(path, NAME)
    assert 100 <= len(plans.numbers()) < 120
    sink.check_claim()


def test_rows_are_split_by_the_columns_that_partition_the_table(path: Path, spark: Any) -> None:
    who, sink = opened(path, spark, partition_by=["day", "kind"])
    rows = spark.range(0, 12, 1, 2).selectExpr(
        "id",
        "date_add(date'2026-01-01', CAST(id % 2 AS INT)) AS day",
        "nullif(concat('a b/', id % 3), 'a b/2') AS kind",
    )
    sink.output_and_progress(batch(rows, 0), progress(who, 0))
    table = DeltaTable(str(path))
    assert table.metadata().partition_columns == ["day", "kind"]
    found = {row["id"]: (str(row["day"]), row["kind"]) for row in table.to_pyarrow_table().to_pylist()}
    assert found == {n: (f"2026-01-0{n % 2 + 1}", None if n % 3 == 2 else f"a b/{n % 3}") for n in range(12)}
    assert table.to_pyarrow_table(filters=[("kind", "=", "a b/1")]).num_rows == 4


def test_every_type_of_spark_comes_back_as_it_went_in(path: Path, spark: Any) -> None:
    who, sink = opened(path, spark)
    rows = spark.range(1).selectExpr(
        "id", "CAST(7 AS TINYINT) AS a", "CAST(7 AS SMALLINT) AS b", "CAST(1.5 AS FLOAT) AS c", "2.5D AS d",
        "CAST('3.25' AS DECIMAL(10, 2)) AS e", "true AS f", "X'00FF' AS g", "date'2026-02-03' AS h",
        "timestamp'2026-02-03 04:05:06.789' AS i", "timestamp_ntz'2026-02-03 04:05:06.789' AS j",
        "array(1, 2) AS k", "named_struct('x', 1, 'y', array('z')) AS l", "map('m', 1) AS m", "CAST(null AS STRING) AS n",
    )  # fmt: skip
    for turn in range(2):  # into a table that is made, and into one that is there
        sink.output_and_progress(batch(rows, turn), progress(who, turn))
    read = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    expected = rows.toArrow().to_pylist()[0]
    assert [{**row, "i": row["i"].timestamp(), "m": list(row["m"])} for row in read] == [
        {**expected, "i": expected["i"].timestamp(), "m": list(expected["m"])}
    ] * 2


@pytest.mark.parametrize(
    ("select", "told"),
    [
        (["id", "'x' AS body", "1 AS more"], "column more"),
        (["CAST(id AS STRING) AS id", "'x' AS body"], "column id of the rows is string"),
        (["'x' AS body"], "needs the column id"),
    ],
)
def test_columns_that_do_not_fit_the_table_are_refused_before_the_start(
    path: Path, spark: Any, select: list[str], told: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("body", pa.string())])
    DeltaTable.create(str(path), schema)
    _, sink = opened(path, spark)
    with pytest.raises(UsageError, match=told):
        sink.accepts(spark.range(1).selectExpr(*select).schema)


def test_null_where_the_table_allows_none_and_bytes_that_are_no_text_cannot_be_delivered(
    path: Path, spark: Any
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("body", pa.string())])
    DeltaTable.create(str(path), schema)
    who, sink = opened(path, spark)
    for select, told in (
        (["nullif(id, 3) AS id", "'x' AS body"], "null"),
        (["id", "CAST(X'FF' AS STRING) AS body"], "body"),
    ):
        with pytest.raises(UndeliverableRow, match=told):
            sink.output_and_progress(batch(spark.range(5).selectExpr(*select), 0), progress(who, 0))
    assert ids(path) == []


def test_a_constraint_that_files_would_pass_by_is_refused(path: Path, spark: Any, ten: Callable[[int], Any]) -> None:
    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    DeltaTable(str(path)).alter.add_constraint({"positive": "id >= 0"})
    with pytest.raises(UsageError, match="constraint positive: id >= 0"):
        atonce.Delta(path).check()
    with pytest.raises(UsageError, match="constraint positive"):
        sink.output_and_progress(batch(ten(1), 1), progress(who, 1))


def test_tables_that_cannot_be_had_are_refused_in_one_line(path: Path, scratch: Path) -> None:
    for make, told in (
        (lambda: atonce.Delta("s3://bucket/table"), "directory of this machine"),
        (lambda: atonce.Delta(path, mode="upsert"), "needs key="),
        (lambda: atonce.Delta(path, key="id"), "belong to mode"),
        (lambda: atonce.Delta(path, create=False).check(), "does not exist"),
        (lambda: atonce.Delta(scratch / "a" / "b").check(), "does not exist"),
    ):
        with pytest.raises(UsageError, match=told) as raised:
            make()
        assert "\n" not in str(raised.value)
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="no Delta table"):
        atonce.Delta(path).check()


def test_a_table_of_other_partitions_than_named_is_refused(path: Path) -> None:
    DeltaTable.create(str(path), pa.schema([("id", pa.int64()), ("day", pa.string())]), partition_by=["day"])
    atonce.Delta(path).check()
    with pytest.raises(UsageError, match="partitioned by day"):
        atonce.Delta(path, partition_by="id").check()


def test_files_that_the_driver_does_not_see_are_not_committed(
    path: Path, spark: Any, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from atonce.connectors.lake import job

    who, sink = opened(path, spark)
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    told = job._file
    monkeypatch.setattr(job, "_file", lambda row: dataclasses.replace(told(row), name="elsewhere.parquet"))
    with pytest.raises(RefusedError, match="share"):
        sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert ids(path) == list(range(10))


def test_clean_removes_files_of_dead_attempts_and_never_those_of_a_live_one(
    path: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    table = atonce.Delta(path)
    who, sink = opened(path, spark)
    assert table.orphans(NAME) == []
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    with pytest.raises(Crash):
        sink.output_and_progress(batch(ten(1), 1, crash_at("output-done")), progress(who, 1))
    assert table.orphans(NAME) == [], "of its own epoch: nobody can tell that it died"
    new, second = opened(path, spark)
    DeltaTable(str(path)).create_checkpoint()
    live: list[Any] = []
    look = at(Step.OUTPUT_DONE, lambda: live.extend([table.orphans(NAME), table.remove_orphans(table.orphans(NAME))]))
    second.output_and_progress(batch(ten(1), 1, look), progress(new, 1))
    assert len(live[0]) == 2 and table.orphans(NAME) == []
    assert ids(path) == list(range(20)) and table.orphans("another") == []
    DeltaTable(str(path)).delete("id >= 0")
    opened(path, spark)
    assert table.orphans(NAME) == [], "what an older version shows is still read"


def test_small_files_are_made_into_larger_ones_between_batches(
    path: Path, spark: Any, ten: Callable[[int], Any]
) -> None:
    who, sink = opened(path, spark, compact_every=2)
    for turn in range(4):
        sink.output_and_progress(batch(ten(turn), turn), progress(who, turn))
    assert len(DeltaTable(str(path)).file_uris()) == 1 and ids(path) == list(range(40))
    assert sink.peek().batch_id == 3
