"""What becomes of rows: types, upsert in input order, dedupe by message number (S16), rows that cannot be delivered."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from atonce.connectors.sql.beside.letters import LetterTable
from atonce.connectors.sql.postgres.making import lock_for_create
from atonce.errors import RefusedError, UndeliverableRow, UsageError
from tests.contract.connectors.sql.database import Database
from tests.contract.connectors.sql.delivering import opened, rows_of

_TYPES = {"text": "text", "int": "bigint", "bytes": "bytea", "time": "timestamp"}


@pytest.mark.parametrize("order_by", ["offset", None])
def test_last_row_of_a_key_wins_by_the_named_order_or_by_input_order(
    database: Database, table: str, spark: Any, order_by: str | None
) -> None:
    database.run(f'CREATE TABLE {table} (key varchar(20) PRIMARY KEY, value varchar(20), "offset" int)')
    with opened(database, table, spark, mode="upsert", key="key", order_by=order_by, create=False) as deliver:
        assert deliver(rows_of(spark, "('a','1',0,1), ('b','1',0,2), ('a','2',0,3), ('a','3',0,4)"), 0) == 2
        assert deliver(rows_of(spark, "('b','9',0,5), ('c','1',0,6)"), 1) == 2
    assert sorted(database.rows(f"SELECT key, value FROM {table}")) == [("a", "3"), ("b", "9"), ("c", "1")]


def test_the_named_order_decides_even_against_input_order(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark, mode="upsert", key="key", order_by="offset") as deliver:
        deliver(rows_of(spark, "('a','newest',0,9), ('a','older',0,3)"), 0)
    assert database.rows(f"SELECT value FROM {table}") == [("newest",)]


def test_upsert_without_an_order_is_refused_when_rows_were_shuffled_or_have_none(
    database: Database, table: str, spark: Any
) -> None:
    rows = rows_of(spark, "('a','1',0,1), ('a','2',0,2)")
    with opened(database, table, spark, mode="upsert", key="key") as deliver:
        with pytest.raises(RefusedError, match="shuffles rows"):
            deliver(rows.repartition(3), 0)
        with pytest.raises(RefusedError, match="no order of its own"):
            deliver(rows, 0, ordered=False)
    assert not database.has(table)


def test_numbers_processed_before_are_dropped_also_within_a_batch(database: Database, table: str, spark: Any) -> None:
    """S16: also when a message was published twice, under another offset."""
    with opened(database, table, spark, dedupe="key", dedupe_keep="1d") as deliver:
        assert deliver(rows_of(spark, "('m1','x',0,1), ('m2','x',0,2), ('m1','again',0,3)"), 0) == 2
        assert deliver(rows_of(spark, "('m2','again',0,4), ('m3','x',0,5)"), 1) == 1
    assert sorted(database.rows(f"SELECT key, value FROM {table}")) == [("m1", "x"), ("m2", "x"), ("m3", "x")]
    with opened(database, table, spark, dedupe="key") as deliver:
        assert deliver(rows_of(spark, "('m3','after a restart',0,6)"), 2) == 0
    assert len(database.rows(f"SELECT 1 FROM atonce_seen_{table}")) == 3


def test_null_where_it_is_not_allowed_stops_and_names_partition_and_offset(
    database: Database, table: str, spark: Any
) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(20) NOT NULL, value varchar(20))")
    with opened(database, table, spark, create=False) as deliver:
        with pytest.raises(UndeliverableRow, match="partition 3, offset 77") as refused:
            deliver(rows_of(spark, "('a','1',3,76), (CAST(NULL AS STRING),'2',3,77)"), 0)
        assert "Nothing of the batch was delivered" in str(refused.value)
        assert database.rows(f"SELECT * FROM {table}") == []
        assert database.ledger(table)[0] == -1


def test_row_that_the_server_refuses_stops_and_names_partition_and_offset(
    database: Database, table: str, spark: Any
) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(20), value varchar(20) CHECK (value <> 'bad'))")
    with opened(database, table, spark, create=False) as deliver:
        with pytest.raises(UndeliverableRow, match="partition 1, offset 12"):
            deliver(rows_of(spark, "('a','1',1,10), ('b','2',1,11), ('c','bad',1,12), ('d','4',1,13)"), 0)
    assert database.rows(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize(
    "options", [{}, {"mode": "upsert", "key": "key", "order_by": "offset"}], ids=["append", "upsert"]
)
def test_a_value_that_a_domain_refuses_goes_to_the_dead_letter_table(
    postgres: Database, table: str, spark: Any, options: dict[str, Any]
) -> None:
    postgres.run(f"CREATE DOMAIN {table}_d AS numeric(6,2) CHECK (VALUE > 0)")
    postgres.run(f'CREATE TABLE {table} (key text PRIMARY KEY, value {table}_d, "offset" int)')
    rows = rows_of(spark, "('a',1.25BD,0,1), ('b',-1.25BD,0,2), ('c',2.25BD,0,3)")
    with opened(postgres, table, spark, create=False, on_error="dead-letter", **options) as deliver:
        deliver(rows, 0)
    assert sorted(str(row[0]) for row in postgres.rows(f"SELECT value FROM {table}")) == ["1.25", "2.25"]
    assert postgres.rows(f"SELECT input_offset FROM {table}_dead_letter") == [(2,)]


def test_long_names_of_two_tables_do_not_share_their_numbers(postgres: Database, table: str, spark: Any) -> None:
    """PostgreSQL cuts names at 63 bytes without an error."""
    long = f"{table}_{'x' * 60}"[:62]
    for name in (f"{long}1", f"{long}2"):
        with opened(postgres, name, spark, dedupe="key") as deliver:
            assert deliver(rows_of(spark, "('m1','x',0,1), ('m1','again',0,2)"), 0) == 1
            assert deliver(rows_of(spark, "('m1','later',0,3)"), 1) == 0
    seen = postgres.rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'atonce_seen_%'")
    assert not [name for (name,) in seen if name.startswith(f"atonce_seen_{table}")], "cut"


def test_numbers_kept_under_a_name_that_was_cut_are_carried_over(postgres: Database, table: str, spark: Any) -> None:
    name = f"{table}_{'x' * 60}"[:63]
    cut = f"atonce_seen_{name}"[:63]
    postgres.run(
        f"CREATE TABLE {cut} (pipeline text, number text, seen_at timestamptz, PRIMARY KEY (pipeline, number))"
    )
    postgres.run(f"INSERT INTO {cut} VALUES ('{name}', 'm1', now()), ('another', 'm2', now())")
    with opened(postgres, name, spark, dedupe="key") as deliver:
        assert deliver(rows_of(spark, "('m1','again',0,1), ('m2','again',0,2), ('m3','x',0,3)"), 0) == 1
    assert postgres.rows(f"SELECT key FROM {name}") == [("m3",)]


def test_number_that_an_older_version_has_under_way_is_carried_over_too(
    postgres: Database, table: str, spark: Any
) -> None:
    old = "pipeline text, number text, seen_at timestamptz, PRIMARY KEY (pipeline, number)"
    postgres.run(f"CREATE TABLE {table} (key text, value text)")
    postgres.run(f"CREATE TABLE atonce_seen_{table} ({old})")
    with psycopg.connect(postgres.where) as older, ThreadPoolExecutor() as pool:
        older.execute(f"INSERT INTO atonce_seen_{table} VALUES ('p', 'm1', now())".encode())
        with opened(postgres, table, spark, create=False, dedupe="key") as deliver:
            rows = rows_of(spark, "('m1','again',0,1), ('m2','x',0,2)")
            delivered = pool.submit(deliver, rows, 0)
            waits = f"SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'atonce_seen_{table}'::regclass"
            while not postgres.rows(waits):
                assert not delivered.done(), delivered.result()
            older.commit()
            assert delivered.result(timeout=60) == 1
    assert postgres.rows(f"SELECT key FROM {table}") == [("m2",)]


def test_two_pipelines_that_make_the_table_of_letters_at_once_both_go_on(
    postgres: Database, table: str, spark: Any
) -> None:
    postgres.run(f"CREATE TABLE {table} (key text NOT NULL, value text)")
    with psycopg.connect(postgres.where) as other, ThreadPoolExecutor() as pool:
        lock_for_create(other)
        other.execute(LetterTable(name=f"{table}_dead_letter", types=_TYPES, placeholder="%s").create().encode())
        with opened(postgres, table, spark, create=False, on_error="dead-letter") as deliver:
            delivered = pool.submit(deliver, rows_of(spark, "('a','1',0,1), (CAST(NULL AS STRING),'2',0,2)"), 0)
            while not postgres.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert not delivered.done(), delivered.result()
            other.commit()
            assert delivered.result(timeout=60) == 1
    assert postgres.rows(f"SELECT input_offset FROM {table}_dead_letter") == [(2,)]


def test_bad_rows_go_to_the_dead_letter_table_in_the_same_commit(database: Database, table: str, spark: Any) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(20) NOT NULL, value varchar(20) CHECK (value <> 'bad'))")
    rows = rows_of(
        spark, "('a','1',0,1), (CAST(NULL AS STRING),'2',0,2), ('c','bad',0,3), ('d','4',0,4), ('e','bad',0,5)"
    )
    with opened(database, table, spark, create=False, on_error="dead-letter") as deliver:
        assert deliver(rows, 0) == 2
    assert sorted(database.rows(f"SELECT key, value FROM {table}")) == [("a", "1"), ("d", "4")]
    dead = database.rows(f"SELECT pipeline, batch_id, input_partition, input_offset, row_json FROM {table}_dead_letter")
    assert sorted(row[:4] for row in dead) == [(table, 0, 0, 2), (table, 0, 0, 3), (table, 0, 0, 5)]
    assert {json.loads(row[4])["value"] for row in dead} == {"2", "bad"}


def test_older_table_of_dead_letters_is_kept_under_another_name(database: Database, table: str, spark: Any) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(20) NOT NULL, value varchar(20))")
    database.run(f"CREATE TABLE {table}_dead_letter (pipeline varchar(20), reason varchar(20))")
    database.run(f"INSERT INTO {table}_dead_letter VALUES ('p', 'of an older version')")
    with opened(database, table, spark, create=False, on_error="dead-letter") as deliver:
        deliver(rows_of(spark, "('a','1',0,1), (CAST(NULL AS STRING),'2',0,2)"), 0)
        deliver(rows_of(spark, "(CAST(NULL AS STRING),'3',0,13)"), 1)
    assert sorted(database.rows(f"SELECT input_offset FROM {table}_dead_letter")) == [(2,), (13,)]
    assert database.rows(f"SELECT reason FROM {table}_dead_letter_before") == [("of an older version",)]


def test_upsert_around_a_refused_row_keeps_the_last_good_one(database: Database, table: str, spark: Any) -> None:
    database.run(
        f"CREATE TABLE {table} (key varchar(20) PRIMARY KEY, value varchar(20) CHECK (value <> 'bad'), \"offset\" int)"
    )
    rows = rows_of(spark, "('a','3',0,3), ('a','1',0,1), ('b','bad',0,4), ('a','2',0,2)")
    with opened(
        database, table, spark, create=False, mode="upsert", key="key", order_by="offset", on_error="dead-letter"
    ) as deliver:
        deliver(rows, 0)
    assert database.rows(f"SELECT key, value FROM {table}") == [("a", "3")]
    assert database.rows(f"SELECT input_offset FROM {table}_dead_letter") == [(4,)]


def test_text_that_is_not_utf8_is_undeliverable(database: Database, table: str, spark: Any) -> None:
    """Spark casts any bytes to a string; a database would refuse them with its own words, or worse."""
    rows = spark.sql("SELECT * FROM VALUES (1, X'FF00'), (2, X'6F6B') AS t(id, raw)").selectExpr(
        "id", "cast(raw as string) AS body"
    )
    with opened(database, table, spark, on_error="dead-letter") as deliver:
        assert deliver(rows, 0) == 1
    assert database.rows(f"SELECT id, body FROM {table}") == [(2, "ok")]


def test_types_without_a_counterpart_are_refused_by_name(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark) as deliver:
        with pytest.raises(UsageError, match=r"column tags: Spark's type array<int> .*to_json\(tags\)"):
            deliver(spark.sql("SELECT array(1, 2) AS tags"), 0)
        with pytest.raises(UsageError, match="map<"):
            deliver(spark.sql("SELECT map('a', 1) AS m"), 0)


def test_column_that_the_table_lacks_is_refused_by_name(database: Database, table: str, spark: Any) -> None:
    database.run(f"CREATE TABLE {table} (id bigint)")
    with opened(database, table, spark, create=False) as deliver:
        with pytest.raises(UsageError, match="has a column body, but table"):
            deliver(spark.sql("SELECT 1L AS id, 'x' AS body"), 0)


def test_missing_table_is_refused_before_the_start(database: Database, table: str) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        database.sink(table, create=False).check()
    database.sink(table, create=True).check()


def test_upsert_needs_a_unique_index_on_the_key(database: Database, table: str, spark: Any) -> None:
    database.run(f'CREATE TABLE {table} (key varchar(20), value varchar(20), "offset" int)')
    with opened(database, table, spark, create=False, mode="upsert", key="key", order_by="offset") as deliver:
        with pytest.raises(UsageError, match="CREATE UNIQUE INDEX"):
            deliver(rows_of(spark, "('a','1',0,1)"), 0)


def test_no_rows_are_a_batch_too(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark) as deliver:
        assert deliver(spark.range(5).where("id < 0"), 0) == 0
    assert database.ledger(table)[0] == 0
