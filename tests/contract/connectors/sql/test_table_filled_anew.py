"""A table that was emptied, or made again, and filled past the position is not the table that was read (F32)."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

import atonce
from atonce.connectors.sql.stream import TableReader
from atonce.connectors.sql.table import Table
from atonce.delivery.events import Event, Step
from atonce.errors import RefusedError

SCHEMA = StructType([StructField("id", LongType()), StructField("body", StringType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    table: Table
    run: Callable[[str], None]
    """Statements, one transaction each."""
    made: str
    emptied: str
    """All rows gone, and ids begin at 1 again."""

    @property
    def name(self) -> str:
        return self.table.table

    def fill(self, rows: int, what: str) -> None:
        self.run(
            f"INSERT INTO {self.name} (body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
            f"WHERE i < {rows}) SELECT '{what} ' || i FROM n"
        )

    def fill_anew(self, rows: int, what: str = "new") -> None:
        self.run(self.emptied)
        self.fill(rows, what)


@pytest.fixture(params=["postgres", "sqlite"])
def outbox(request: pytest.FixtureRequest, scratch: Path) -> Outbox:
    name = f"outbox_{uuid.uuid4().hex[:10]}"
    if request.param == "sqlite":
        path = scratch / "app.db"

        def run_sqlite(text: str) -> None:
            for statement in text.split(";"):
                with closing(sqlite3.connect(path)) as connection, connection:
                    connection.execute(statement)

        made = f"CREATE TABLE {name} (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT)"
        found = Outbox(table=Table(path, name), run=run_sqlite, made=made, emptied=f"DROP TABLE {name}; {made}")
    else:
        url = request.getfixturevalue("postgres_url")

        def run_postgres(text: str) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in text.split(";"):
                    connection.execute(statement.encode())

        made = f"CREATE TABLE {name} (id bigserial PRIMARY KEY, body text)"
        emptied = f"TRUNCATE {name}; SELECT setval('{name}_id_seq', 1, false)"
        found = Outbox(table=Table(url, name), run=run_postgres, made=made, emptied=emptied)
    found.run(found.made)
    found.fill(5, "old")
    return found


def reader(outbox: Outbox, **options: str) -> TableReader:
    given = {
        "url": str(outbox.table.url),
        "table": outbox.name,
        "identity": outbox.table.source_ids()[outbox.name],
        **options,
    }
    return TableReader(given, SCHEMA)


def planned(of: TableReader, start: dict[str, Any]) -> dict[str, Any]:
    """The next offsets, as Spark keeps them: they go through JSON."""
    found: dict[str, Any] = json.loads(json.dumps(of.latestOffset(start, ReadAllAvailable())))
    return found


def bodies(of: TableReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [body for part in of.partitions(start, end) for batch in of.read(part) for body in batch["body"].to_pylist()]


DIFFERENT = r"holds another row 5 than the one that was read last, before position 6: body had digest \w+ and has \w+"


def test_a_table_filled_anew_past_the_position_is_refused_with_both_rows_named(outbox: Outbox) -> None:
    of = reader(outbox)
    at = planned(of, of.initialOffset())
    assert at[outbox.name] == 6
    assert planned(of, at) == at, "Spark plans no batch for the same offset"
    outbox.fill_anew(20)
    with pytest.raises(RefusedError, match=DIFFERENT):
        planned(of, at)
    with pytest.raises(RefusedError, match=rf"Next: .*--to earliest.*`atonce reset NAME --to {outbox.name}=6`"):
        planned(reader(outbox), at)


def test_rows_deleted_one_by_one_and_ids_set_back_by_hand_are_noticed_too(outbox: Outbox) -> None:
    of = reader(outbox)
    at = planned(of, of.initialOffset())
    back = (
        f"SELECT setval('{outbox.name}_id_seq', 1, false)"
        if "postgres" in str(outbox.table.url)
        else "DELETE FROM sqlite_sequence"
    )
    outbox.run(f"DELETE FROM {outbox.name}; {back}")
    outbox.fill(20, "new")
    with pytest.raises(RefusedError, match=DIFFERENT):
        planned(of, at)


def test_a_table_filled_anew_between_plan_and_read_gives_no_row(outbox: Outbox) -> None:
    of = reader(outbox)
    first = of.initialOffset()
    at = planned(of, first)
    outbox.fill(3, "old")
    end = planned(of, at)
    assert bodies(of, at, end) == ["old 1", "old 2", "old 3"]
    outbox.fill_anew(20)
    with pytest.raises(RefusedError, match=DIFFERENT):
        bodies(of, at, end)
    with pytest.raises(RefusedError, match=DIFFERENT):
        bodies(of, first, at)  # nothing stood before this one: the row that it was to end with tells


CLEANED = {
    "cleaned": "DELETE FROM {t}",
    "cleaned and a column more": "DELETE FROM {t}; ALTER TABLE {t} ADD COLUMN more TEXT DEFAULT 'x'",
    "cleaned and vacuumed": "DELETE FROM {t}; VACUUM",
    "some cleaned": "DELETE FROM {t} WHERE id IN (1, 3, 5)",
    "the oldest cleaned and a column more": "DELETE FROM {t} WHERE id < 4; ALTER TABLE {t} ADD COLUMN more TEXT",
    "another column, no longer read": "ALTER TABLE {t} ADD COLUMN more TEXT; UPDATE {t} SET more = 'sent'",
    "vacuumed": "VACUUM",
}


@pytest.mark.parametrize("what", CLEANED.values(), ids=CLEANED)
def test_a_table_that_is_cleaned_or_altered_goes_on(outbox: Outbox, what: str) -> None:
    of = reader(outbox)
    at = planned(of, of.initialOffset())
    outbox.run(what.format(t=outbox.name))
    assert planned(of, at) == at
    outbox.fill(2, "more")
    end = planned(of, at)
    assert end[outbox.name] == 8
    assert bodies(reader(outbox, columns='["id", "body"]'), at, end) == ["more 1", "more 2"]


def test_rows_below_the_position_of_which_nothing_is_known_are_refused(outbox: Outbox) -> None:
    """The row at the border is missing in the new table as well: a gap, as a rolled back insert leaves it."""
    of = reader(outbox)
    at = planned(of, of.initialOffset())
    outbox.fill_anew(20)
    outbox.run(f"DELETE FROM {outbox.name} WHERE id = 5")
    told = (
        f"no longer has row 5, the last that was read before position 6, has row 4 below it, .*cannot be told.*{NEXT}"
    )
    with pytest.raises(RefusedError, match=told):
        planned(of, at)
    outbox.run(f"DELETE FROM {outbox.name} WHERE id < 6")
    assert planned(of, at)[outbox.name] == 21, "nothing is left that could be passed over"


NEXT = r"Next: delete the rows below the position if they are published, or .*`atonce reset NAME --to outbox_\w+=6`"


def test_columns_that_change_later_are_left_out_of_the_comparison_when_they_are_not_read(outbox: Outbox) -> None:
    outbox.run(f"ALTER TABLE {outbox.name} ADD COLUMN sent TEXT")
    of = reader(outbox, columns='["id", "body"]')
    at = planned(of, of.initialOffset())
    outbox.run(f"UPDATE {outbox.name} SET sent = 'yes'")
    assert planned(of, at) == at
    all_of_it = reader(outbox)
    at = planned(all_of_it, all_of_it.initialOffset())
    outbox.run(f"UPDATE {outbox.name} SET sent = 'and seen'")
    with pytest.raises(RefusedError, match=r"sent had digest .*leave columns that change later out of what is read"):
        planned(all_of_it, at)


def test_a_position_that_was_kept_without_its_border_gets_one_with_the_next_batch(outbox: Outbox) -> None:
    of = reader(outbox)
    old = {outbox.name: 6}
    assert planned(of, old) == old
    outbox.fill(2, "more")
    at = planned(of, old)
    assert bodies(of, old, at) == ["more 1", "more 2"]
    outbox.fill_anew(20)
    with pytest.raises(RefusedError, match="holds another row 7"):
        planned(of, at)


def test_the_ledgers_border_counts_for_a_fresh_checkpoint(outbox: Outbox) -> None:
    known = outbox.table.borders({outbox.name: 4})
    outbox.fill_anew(20)
    of = reader(outbox, start="4", borders=json.dumps(known))
    with pytest.raises(RefusedError, match="holds another row 3"):
        of.latestOffset(of.initialOffset(), ReadMaxRows(10))


def test_values_read_the_same_whatever_a_role_is_set_to(postgres_url: str) -> None:
    name = f"outbox_{uuid.uuid4().hex[:10]}"
    kinds = "at timestamptz, span interval, ratio float8, raw bytea, day date, price money"
    row = "now(), interval '1 day 2 hours', 0.1, '\\x00ff', '2024-02-03', 12.5"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, {kinds})".encode())
        connection.execute(f"INSERT INTO {name} (at, span, ratio, raw, day, price) VALUES ({row})".encode())
    before = Table(postgres_url, name).borders({name: 2})
    odd = (
        "-c TimeZone=Asia/Tokyo -c DateStyle=German -c IntervalStyle=iso_8601 -c extra_float_digits=0 "
        "-c bytea_output=escape"
    )
    other = psycopg.conninfo.make_conninfo(postgres_url, options=odd)
    now = Table(other, name).borders({name: 2})
    assert json.loads(now[name])["row"] == json.loads(before[name])["row"]


# In a pipeline


def pipeline(outbox: Outbox, scratch: Path, **more: Any) -> atonce.Pipeline:
    return (
        atonce.Pipeline("outbox", checkpoint=str(scratch / "checkpoint"), say=lambda _: None, **more)
        .read(outbox.table)
        .write(atonce.SQLite(scratch / "out.db", table="rows"))
    )


def count(scratch: Path) -> int:
    with closing(sqlite3.connect(scratch / "out.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])


def test_a_table_filled_anew_while_the_pipeline_is_stopped_is_refused_until_it_is_reset(
    outbox: Outbox, scratch: Path, spark: Any
) -> None:
    made = pipeline(outbox, scratch)
    made.run(available_now=True)
    outbox.fill_anew(20)
    with pytest.raises(RefusedError, match=DIFFERENT):
        made.run(available_now=True)
    (scratch / "checkpoint").rename(scratch / "lost")
    with pytest.raises(RefusedError, match=DIFFERENT):  # by the ledger alone
        made.run(available_now=True)
    assert count(scratch) == 5
    made.reset(f"{outbox.name}=6")
    made.run(available_now=True)
    assert count(scratch) == 20, "said to be the same table"
    outbox.fill_anew(40, "newer")
    with pytest.raises(RefusedError, match="holds another row 20"):
        made.run(available_now=True)


def test_a_table_filled_anew_under_a_running_pipeline_stops_it(outbox: Outbox, scratch: Path, spark: Any) -> None:
    class Refill:
        """When the second batch is planned and not read yet, the table is filled anew."""

        done = False

        def on_event(self, event: Event) -> None:
            if event.step is Step.DELIVERED and not self.done:
                outbox.fill(3, "old")
            if event.step is Step.PLANNED and event.batch_id == 1 and not self.done:
                self.done = True
                outbox.fill_anew(20)

    watcher = Refill()
    with pipeline(outbox, scratch, observer=watcher).running() as run:
        run.start()
        with pytest.raises(RefusedError, match=DIFFERENT):
            run.wait()
    assert watcher.done
    assert count(scratch) == 5
