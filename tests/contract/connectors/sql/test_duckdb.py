"""What only DuckDB has to keep: a file that others can read and take over, and a lock that is not the fence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from atonce.connectors.sql.duckdb import sink as sink_module
from atonce.connectors.sql.duckdb import store
from atonce.connectors.sql.duckdb.file import DuckFile
from atonce.connectors.sql.duckdb.sink import DuckDB
from atonce.connectors.sql.ledger import SqlLedger
from atonce.errors import OutcomeUnknown, RefusedError, RetriableError, UnreachableError, UsageError
from tests.contract.connectors.sql.database import Database, batch, identity, progress
from tests.contract.connectors.sql.delivering import opened

HOLDER = """
import sys, duckdb
held = duckdb.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
"""
PAUSED = """
import sys
from atonce.connectors.sql.duckdb.file import DuckFile
from atonce.connectors.sql.ledger import LedgerMoved, SqlLedger
from atonce.delivery.progress import Progress
file, ledger = DuckFile(sys.argv[1]), SqlLedger(name="p", instance="old")
ledger.create(file)
ledger.claim(file)
file.commit()
print("claimed", flush=True)
sys.stdin.readline()  # stands still
try:
    ledger.advance(file, Progress(instance="old", query_id="q", batch_id=0, positions={}, sequence=1))
    file.commit()
    print("wrote", flush=True)
except LedgerMoved:
    file.close()
    print("fenced", flush=True)
"""
READER = """
import sys, duckdb
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    print(connection.execute(f"SELECT count(*) FROM {sys.argv[2]}").fetchone()[0])
"""


@contextmanager
def other_process(code: str, path: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_paused_driver_blocks_no_newcomer_and_writes_nothing_when_it_wakes(duck: Database) -> None:
    """F16: DuckDB lets one process into a file, so whoever kept it open could not be replaced."""
    with other_process(PAUSED, duck.where) as old:
        assert line(old) == "claimed"
        file, ledger = DuckFile(duck.where, wait_s=1), SqlLedger(name="p", instance="new")
        ledger.claim(file)
        file.commit()
        assert ledger.before == ("old", 1)
        go_on(old)
        assert line(old) == "fenced"
    assert duck.rows("SELECT instance, sequence FROM atonce_ledger") == [("new", 0)]


def test_anybody_reads_the_file_between_batches_and_while_one_is_computed(
    duck: Database, table: str, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> int:
        command = [sys.executable, "-c", READER, duck.where, table]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    found = []
    run_into = store.run_into

    def watched(*given: Any) -> int:
        if number:
            found.append(read())
        return run_into(*given)

    monkeypatch.setattr(store, "run_into", watched)
    with opened(duck, table, ten(0).sparkSession) as deliver:
        for number in range(2):
            deliver(ten(number), number)
            found.append(read())
    assert found == [10, 10, 20]


def test_a_file_that_another_process_has_open_is_waited_for_and_its_holder_named(duck: Database) -> None:
    with other_process(HOLDER, duck.where) as holder:
        assert line(holder) == "open"
        with pytest.raises(RetriableError, match=rf"held by process {holder.pid} .*for 0.1 s"):
            DuckFile(duck.where, wait_s=0.1).execute("SELECT 1")
        go_on(holder)
        file = DuckFile(duck.where)
        assert file.execute("SELECT 1").fetchone() == (1,)
        file.close()


def test_two_transactions_of_one_process_are_kept_apart_too(duck: Database) -> None:
    first = DuckFile(duck.where)
    first.execute("SELECT 1")
    with pytest.raises(RetriableError, match="by this process, in another transaction"):
        DuckFile(duck.where, wait_s=0.05).execute("SELECT 1")
    first.close()


def test_an_error_at_commit_is_no_answer(duck: Database) -> None:
    file = DuckFile(duck.where)
    file.execute("CREATE TABLE t (id int)")
    file.opened().execute("ROLLBACK")
    with pytest.raises(OutcomeUnknown):
        file.commit()
    assert not file.is_open


def test_a_file_that_does_not_keep_what_is_committed_is_refused(duck: Database) -> None:
    with duckdb.connect(duck.where) as mine:
        mine.execute("SET fsync_mode = 'none'")
        with pytest.raises(RefusedError, match="fsync_mode=none"):
            DuckFile(duck.where).execute("SELECT 1")


def test_a_table_that_is_changed_while_a_batch_is_computed_ends_the_attempt(
    duck: Database, table: str, ten: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from atonce.errors import AttemptAborted

    who = identity(table)
    sink = duck.sink(table).open(who, ten(0).sparkSession)
    sink.claim()
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    run_into = store.run_into

    def altered(*given: Any) -> int:
        duck.run(f"ALTER TABLE {table} ALTER COLUMN body SET NOT NULL")
        return run_into(*given)

    with monkeypatch.context() as patched:
        patched.setattr(store, "run_into", altered)
        with pytest.raises(AttemptAborted, match="was changed while a batch was computed"):
            sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert duck.ids(table) == list(range(20))
    sink.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [("int", "1L"), ("decimal(10,2)", "1.234BD"), ("double", "1.5BD"), ("timestamp", "timestamp '2026-01-01'")],
)
def test_a_column_that_would_change_values_is_refused(
    duck: Database, table: str, spark: Any, column: str, value: str
) -> None:
    duck.run(f"CREATE TABLE {table} (value {column})")
    sink = duck.sink(table).open(identity(table), spark)
    with pytest.raises(UsageError, match="would change values"):
        sink.accepts(spark.sql(f"SELECT {value} AS value").schema)
    sink.close()


def test_every_type_comes_back_as_it_went_in(duck: Database, table: str, spark: Any) -> None:
    df = spark.sql(
        "SELECT true AS a, 1Y AS b, 2S AS c, 3 AS d, 4L AS e, CAST(0.5 AS FLOAT) AS f, 0.1D AS g, 12.30BD AS h, 'ä' AS i, "
        "X'00ff' AS j, DATE '1969-12-31' AS k, TIMESTAMP '2026-03-29 01:30:00.123456Z' AS l, "
        "TIMESTAMP_NTZ '1900-01-01 00:00:00' AS m, CAST(NULL AS STRING) AS n"
    )
    with opened(duck, table, spark) as deliver:
        deliver(df, 0)
    # As text, and the moment as microseconds: what a client makes of them is not the point.
    found = duck.rows(f"SELECT a, b, c, d, e, f, g, h::text, i, hex(j), k::text, epoch_us(l), m::text, n FROM {table}")
    moment = 1774747800123456
    assert found == [
        (True, 1, 2, 3, 4, 0.5, 0.1, "12.30", "ä", "00FF", "1969-12-31", moment, "1900-01-01 00:00:00", None)
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ":memory:"}, "would not survive"),
        ({"path": "md:mine"}, "local disk"),
        ({"path": "s3://bucket/file"}, "local disk"),
    ],
)
def test_what_duckdb_cannot_have_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        DuckDB(table="t", **options)


def test_duckdb_asks_what_its_file_stands_on(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DuckDB(scratch / "out.duckdb", "t")
    sink.check()
    assert not sink.exists(), "asking makes no file"
    with pytest.raises(UsageError, match="create=True"):
        DuckDB(scratch / "out.duckdb", "t", create=False).check()
    with pytest.raises(UsageError, match="does not exist"):
        DuckDB(scratch / "nowhere" / "out.duckdb", "t").check()
    (scratch / "text").write_text("no database" * 1000)
    with pytest.raises(UnreachableError, match="cannot be used as a DuckDB database"):
        DuckDB(scratch / "text", "t").check()
    with monkeypatch.context() as patched:
        patched.setattr(sink_module, "kind_of", lambda _: "nfs4")
        with pytest.raises(UsageError, match="network file system"):
            sink.check()
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "duckdb", None)
        with pytest.raises(UsageError, match=r"pip install 'atonce\[duckdb\]'"):
            sink.check()
