"""Upsert keeps the newest row of a key by its order, and a deletion's order outlives the row, whatever the cuts."""

from __future__ import annotations

from typing import Any

import pytest

from atonce.errors import UndeliverableRow, UsageError
from tests.contract.connectors.sql.database import Database, identity
from tests.contract.connectors.sql.delivering import opened, rows_of

BY_OFFSET = {"mode": "upsert", "key": "key", "order_by": "offset"}


def changes_of(spark: Any, values: str, columns: str = "key, value, at, gone") -> Any:
    return spark.sql(f"SELECT * FROM VALUES {values} AS t({columns})")


def values_of(database: Database, table: str) -> list[tuple[Any, ...]]:
    return sorted(database.rows(f"SELECT key, value FROM {table}"))


def test_an_older_row_that_comes_in_a_later_batch_changes_nothing(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark, **BY_OFFSET) as deliver:
        assert deliver(rows_of(spark, "('a','new',0,9), ('b','only',0,1)"), 0) == 2
        assert deliver(rows_of(spark, "('a','old',1,3), ('c','first',1,4)"), 1) == 1
        assert deliver(rows_of(spark, "('a','newest',0,10)"), 2) == 1
    assert values_of(database, table) == [("a", "newest"), ("b", "only"), ("c", "first")]


def test_the_same_batch_again_changes_no_row(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark, **BY_OFFSET) as deliver:
        assert deliver(rows_of(spark, "('a','1',0,1), ('b','2',0,2)"), 0) == 2
        assert deliver(rows_of(spark, "('a','1',0,1), ('b','2',0,2)"), 1) == 0


def test_an_older_row_changes_nothing_around_a_refused_row_either(database: Database, table: str, spark: Any) -> None:
    """What the server refuses is found row by row: each of them is compared with the stored row, too."""
    database.run(
        f"CREATE TABLE {table} (key varchar(9) PRIMARY KEY, value varchar(9) CHECK (value <> 'bad'), \"offset\" int)"
    )
    with opened(database, table, spark, **BY_OFFSET, create=False, on_error="dead-letter") as deliver:
        deliver(rows_of(spark, "('a','new',0,9), ('b','new',0,9)"), 0)
        deliver(rows_of(spark, "('a','old',1,3), ('b','bad',1,10), ('b','old',1,4), ('c','one',1,5)"), 1)
    assert values_of(database, table) == [("a", "new"), ("b", "new"), ("c", "one")]
    assert database.rows(f"SELECT input_offset FROM {table}_dead_letter") == [(10,)]


def test_the_last_row_of_a_key_wins_around_refused_rows_in_input_order(
    database: Database, table: str, spark: Any
) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(9) PRIMARY KEY, value varchar(9) CHECK (value <> 'bad'))")
    rows = (
        "('a','4',0,1), ('b','bad',0,2), ('a','3',0,3), ('a','bad',0,4), ('a','2',0,5), ('c','bad',0,6), ('a','1',0,7)"
    )
    with opened(database, table, spark, mode="upsert", key="key", create=False, on_error="dead-letter") as deliver:
        deliver(rows_of(spark, rows), 0)
    assert values_of(database, table) == [("a", "1")]
    dead = {offset for (offset,) in database.rows(f"SELECT input_offset FROM {table}_dead_letter")}
    assert {2, 6} <= dead <= {2, 4, 6}, "4 may have been replaced by 5 before the server saw it"


@pytest.mark.parametrize("kind", ["jsonb", "enum"])
def test_a_value_that_cannot_even_be_compared_is_found_among_the_others(
    postgres: Database, table: str, spark: Any, kind: str
) -> None:
    """The search for it must not sort by what only good rows can be cast to."""
    good = "open"
    if kind == "jsonb":
        good = "[1]"
    else:
        postgres.run(f"CREATE TYPE {table}_e AS ENUM ('open', 'closed')")
        kind = f"{table}_e"
    postgres.run(f'CREATE TABLE {table} (key text PRIMARY KEY, value {kind}, "offset" int)')
    rows = f"('a','{good}',0,1), ('b','no such',0,2), ('c','{good}',0,3), ('a','{good}',0,4)"
    with opened(postgres, table, spark, **BY_OFFSET, create=False, on_error="dead-letter") as deliver:
        deliver(rows_of(spark, rows), 0)
    assert sorted(postgres.rows(f'SELECT key, "offset" FROM {table}')) == [("a", 4), ("c", 3)]
    assert postgres.rows(f"SELECT input_offset FROM {table}_dead_letter") == [(2,)]


def test_text_that_is_no_number_is_older_than_every_decimal(sqlite: Database, table: str, spark: Any) -> None:
    """SQLite keeps decimals as text, and whoever else writes to the table may have left anything there."""
    sqlite.run(f"CREATE TABLE {table} (key text PRIMARY KEY, value text, at text)")
    sqlite.run(f"INSERT INTO {table} VALUES ('a', 'empty', ''), ('b', 'odd', 'NaN'), ('c', 'number', '-3.0')")
    rows = "('a','new',-5.5BD), ('b','new',-5.5BD), ('c','old',-5.5BD)"
    with opened(sqlite, table, spark, mode="upsert", key="key", order_by="at", create=False) as deliver:
        deliver(changes_of(spark, rows, "key, value, at"), 0)
    assert values_of(sqlite, table) == [("a", "new"), ("b", "new"), ("c", "number")]


def test_order_columns_that_the_table_lacks_are_refused_at_the_start(
    database: Database, table: str, spark: Any
) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(20) PRIMARY KEY, value varchar(20))")
    rows = rows_of(spark, "('a','1',0,1)")
    sink = database.sink(table, create=False, **BY_OFFSET).open(identity(table), spark)
    try:
        with pytest.raises(UsageError, match=f"table {table} has no column offset. Next: ALTER TABLE"):
            sink.accepts(rows.schema)
    finally:
        sink.close()


def test_what_is_looked_at_before_the_start_leaves_no_table_behind(database: Database, table: str, spark: Any) -> None:
    sink = database.sink(table, **BY_OFFSET).open(identity(table), spark)
    try:
        sink.accepts(rows_of(spark, "('a','1',0,1)").schema)
    finally:
        sink.close()
    assert not database.has(table)


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
def test_null_in_an_order_column_is_undeliverable(database: Database, table: str, spark: Any, on_error: str) -> None:
    rows = changes_of(spark, "('a','1',CAST(NULL AS INT)), ('b','2',2)", "key, value, at")
    with opened(database, table, spark, mode="upsert", key="key", order_by="at", on_error=on_error) as deliver:
        if on_error == "stop":
            with pytest.raises(UndeliverableRow, match="column at is null"):
                deliver(rows, 0)
        else:
            assert deliver(rows, 0) == 1
            assert len(database.rows(f"SELECT 1 FROM {table}_dead_letter")) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_equal_orders_go_to_the_larger_position_whichever_comes_first(
    database: Database, table: str, spark: Any, turned: bool
) -> None:
    columns = "key, value, at, topic, partition, offset"
    rows = ["('a','lower',5,'t',0,9)", "('a','higher',5,'t',1,2)"]
    with opened(database, table, spark, mode="upsert", key="key", order_by="at") as deliver:
        for number, row in enumerate(reversed(rows) if turned else rows):
            deliver(changes_of(spark, row, columns), number)
    assert values_of(database, table) == [("a", "higher")]


@pytest.mark.parametrize("turned", [False, True])
def test_equal_orders_without_positions_go_to_the_larger_values_whichever_comes_first(
    database: Database, table: str, spark: Any, turned: bool
) -> None:
    rows = ["('a','x',5)", "('a','y',5)"]
    with opened(database, table, spark, mode="upsert", key="key", order_by="at") as deliver:
        for number, row in enumerate(reversed(rows) if turned else rows):
            deliver(changes_of(spark, row, "key, value, at"), number)
    assert values_of(database, table) == [("a", "y")]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("9.5BD", "10.5BD"),
        ("CAST(-0.5 AS DOUBLE)", "CAST(1e3 AS DOUBLE)"),
        ("TIMESTAMP '2024-01-01 00:00:00.5'", "TIMESTAMP '2024-01-01 00:00:00.51'"),
        ("DATE '1999-12-31'", "DATE '2000-01-01'"),
        ("'Zebra'", "'apple'"),
        ("'z'", "'ä'"),
        ("X'7F'", "X'80'"),
        ("false", "true"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_the_order_is_the_same_inside_a_batch_and_against_the_stored_row(
    database: Database, table: str, spark: Any, older: str, newer: str, together: bool
) -> None:
    """By value for numbers and times, by bytes for text: not by the collation of the database, as Spark orders it."""
    rows = [f"('a','newer',{newer})", f"('a','older',{older})"]
    with opened(database, table, spark, mode="upsert", key="key", order_by="at") as deliver:
        for number, values in enumerate([", ".join(rows)] if together else rows):
            deliver(changes_of(spark, values, "key, value, at"), number)
    assert values_of(database, table) == [("a", "newer")]


def test_text_of_a_column_with_its_own_collation_goes_by_its_bytes(postgres: Database, table: str, spark: Any) -> None:
    postgres.run(f'CREATE TABLE {table} (key text PRIMARY KEY, value text, at text COLLATE "en-x-icu")')
    with opened(postgres, table, spark, create=False, mode="upsert", key="key", order_by="at") as deliver:
        deliver(changes_of(spark, "('a','newer','b'), ('a','older','B')", "key, value, at"), 0)
        deliver(changes_of(spark, "('a','older still','A')", "key, value, at"), 1)
    assert values_of(postgres, table) == [("a", "newer")]


def test_keys_that_the_table_takes_for_equal_are_one_key(collating: Database, table: str, spark: Any) -> None:
    collation = "NOCASE"
    if collating.kind == "postgres":
        collation = f"any_case_{table}"
        collating.run(
            f"CREATE COLLATION {collation} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    collating.run(f"CREATE TABLE {table} (key text COLLATE {collation} PRIMARY KEY, value text, at int)")
    _upper_and_lower_case_are_one_key(collating, table, spark)


@pytest.mark.parametrize("cuts", [["A", "a"], ["a", "A"], ["A, a"], ["a, A"]], ids=" then ".join)
def test_of_keys_alike_and_rows_alike_the_same_one_stays_whatever_the_cuts(
    collating: Database, table: str, spark: Any, cuts: list[str]
) -> None:
    """Only the bytes of the key tell the two rows apart, so they decide."""
    collation = "NOCASE"
    if collating.kind == "postgres":
        collation = f"any_case_{table}"
        collating.run(
            f"CREATE COLLATION {collation} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    collating.run(f"CREATE TABLE {table} (key text COLLATE {collation} PRIMARY KEY, value text, at int)")
    with opened(collating, table, spark, mode="upsert", key="key", order_by="at", create=False) as deliver:
        for number, keys in enumerate(cuts):
            values = ", ".join(f"('{key}','same',1)" for key in keys.split(", "))
            deliver(changes_of(spark, values, "key, value, at"), number)
    assert values_of(collating, table) == [("a", "same")]


def test_sqlite_keys_that_the_unique_index_takes_for_equal_are_one_key(
    sqlite: Database, table: str, spark: Any
) -> None:
    sqlite.run(f"CREATE TABLE {table} (key varchar(9), value varchar(9), at int)")
    sqlite.run(f"CREATE UNIQUE INDEX {table}_i ON {table} (key COLLATE NOCASE)")
    _upper_and_lower_case_are_one_key(sqlite, table, spark)


def _upper_and_lower_case_are_one_key(database: Database, table: str, spark: Any) -> None:
    options = {"mode": "upsert", "key": "key", "order_by": "at", "delete": "gone", "create": False}
    with opened(database, table, spark, **options) as deliver:
        deliver(changes_of(spark, "('A','old',1,false), ('a',CAST(NULL AS STRING),2,true)"), 0)
        assert values_of(database, table) == []
        deliver(changes_of(spark, "('A','old',1,false), ('b','one',1,false), ('B','two',2,false)"), 1)
        deliver(changes_of(spark, "('b','three',3,true), ('B','one and a half',2,false)"), 2)
    assert values_of(database, table) == []


def test_not_a_number_is_the_newest_and_has_no_order_in_sqlite(database: Database, table: str, spark: Any) -> None:
    rows = [("('a','nan',CAST('NaN' AS DOUBLE))"), "('a','one',1D)"]
    with opened(database, table, spark, mode="upsert", key="key", order_by="at", on_error="dead-letter") as deliver:
        for number, row in enumerate(rows):
            deliver(changes_of(spark, row, "key, value, at"), number)
    assert values_of(database, table) == [("a", "one" if database.kind == "sqlite" else "nan")]


def test_a_row_older_than_the_deletion_of_its_key_does_not_stand_again(
    database: Database, table: str, spark: Any
) -> None:
    options = {"mode": "upsert", "key": "key", "order_by": "at", "delete": "gone"}
    with opened(database, table, spark, **options) as deliver:
        assert deliver(changes_of(spark, "('a','5',5,false), ('b','5',5,false)"), 0) == 2
        assert deliver(changes_of(spark, "('a',CAST(NULL AS STRING),7,true)"), 1) == 1
        assert deliver(changes_of(spark, "('a','6',6,false)"), 2) == 0
    assert values_of(database, table) == [("b", "5")]
    with opened(database, table, spark, **options) as deliver:  # the memory outlives the process
        deliver(changes_of(spark, "('a','7',7,false), ('b',CAST(NULL AS STRING),4,true)"), 3)
        assert values_of(database, table) == [("b", "5")]
        deliver(changes_of(spark, "('a','8',8,false)"), 4)
    assert values_of(database, table) == [("a", "8"), ("b", "5")]
    assert database.rows(f"SELECT key, at FROM atonce_deleted_{table}") == []
    assert "gone" not in database.columns(table)


def test_a_deletion_before_its_row_is_remembered(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark, mode="upsert", key="key", order_by="at", delete="gone") as deliver:
        deliver(changes_of(spark, "('a',CAST(NULL AS STRING),7,true)"), 0)
        deliver(changes_of(spark, "('a','6',6,false), ('b','6',6,CAST(NULL AS BOOLEAN))"), 1)
    assert values_of(database, table) == [("b", "6")]


def test_without_an_order_the_last_in_input_order_deletes_or_stands(database: Database, table: str, spark: Any) -> None:
    rows = "('a','1',1,false), ('a','2',1,true), ('b','1',1,true), ('b','2',1,false), ('c','1',1,false)"
    with opened(database, table, spark, mode="upsert", key="key", delete="gone") as deliver:
        deliver(changes_of(spark, rows).coalesce(1), 0)
        deliver(changes_of(spark, "('c','1',1,true)"), 1)
    assert values_of(database, table) == [("b", "2")]
    assert not database.has(f"atonce_deleted_{table}")


@pytest.mark.parametrize("order", [{"order_by": "at"}, {}])
def test_nulls_in_a_deletion_do_not_matter_but_in_its_key(
    database: Database, table: str, spark: Any, order: dict[str, str]
) -> None:
    database.run(
        f"CREATE TABLE {table} (key varchar(9) PRIMARY KEY, value varchar(3) NOT NULL CHECK (value <> 'bad'), "
        "at int NOT NULL)"
    )
    rows = (
        "('a',CAST(NULL AS STRING),7,true), ('b','far too long for it',7,true), ('c','bad',7,true), ('d','4',7,false)"
    )
    options = {"mode": "upsert", "key": "key", "delete": "gone", "create": False}
    with opened(database, table, spark, **options, **order) as deliver:
        deliver(changes_of(spark, "('a','1',1,false), ('b','2',1,false), ('c','3',1,false)"), 0)
        assert deliver(changes_of(spark, rows), 1) == 4
        assert values_of(database, table) == [("d", "4")]
        with pytest.raises(UndeliverableRow, match="column key is null"):
            deliver(changes_of(spark, "(CAST(NULL AS STRING),'1',8,true)"), 2)


def test_deletions_around_a_refused_row_are_deletions(database: Database, table: str, spark: Any) -> None:
    database.run(f"CREATE TABLE {table} (key varchar(9) PRIMARY KEY, value varchar(9) CHECK (value <> 'bad'), at int)")
    options = {"mode": "upsert", "key": "key", "order_by": "at", "delete": "gone", "create": False}
    with opened(database, table, spark, **options, on_error="dead-letter") as deliver:
        deliver(changes_of(spark, "('a','1',1,false), ('b','1',1,false)"), 0)
        deliver(changes_of(spark, "('a','x',3,true), ('b','bad',4,false), ('b','2',2,false), ('a','y',2,false)"), 1)
        deliver(changes_of(spark, "('a','late',2,false)"), 2)
    assert values_of(database, table) == [("b", "2")]


def test_soft_delete_keeps_the_row_with_its_flag_and_its_order(database: Database, table: str, spark: Any) -> None:
    with opened(database, table, spark, mode="upsert", key="key", order_by="at", soft_delete="gone") as deliver:
        deliver(changes_of(spark, "('a','5',5,false), ('b','5',5,CAST(NULL AS BOOLEAN))"), 0)
        deliver(changes_of(spark, "('a',CAST(NULL AS STRING),7,true)"), 1)
        deliver(changes_of(spark, "('a','6',6,false)"), 2)
    assert sorted(database.rows(f"SELECT key, value, at, gone FROM {table}")) == [("a", None, 7, 1), ("b", "5", 5, 0)]
    assert not database.has(f"atonce_deleted_{table}")


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (
            "key varchar(9) PRIMARY KEY, value varchar(9), at int, gone boolean",
            {"delete": "gone"},
            "soft_delete='gone'",
        ),
        ("key varchar(9) PRIMARY KEY, value varchar(9), at int", {"soft_delete": "gone"}, "no column gone"),
        (
            "key varchar(9) PRIMARY KEY, value varchar(9) NOT NULL, at int, gone boolean",
            {"soft_delete": "gone"},
            "value of .* is NOT NULL",
        ),
        ("key varchar(9) PRIMARY KEY, value varchar(9), at int", {"delete": "value"}, "must be boolean"),
        ("key varchar(9) PRIMARY KEY, value varchar(9), at int", {"delete": "dead"}, "column dead is named as delete"),
    ],
)
def test_deletes_that_the_table_cannot_have_are_refused_in_one_line(
    database: Database, table: str, spark: Any, columns: str, options: dict[str, str], words: str
) -> None:
    database.run(f"CREATE TABLE {table} ({columns})")
    sink = database.sink(table, create=False, mode="upsert", key="key", order_by="at", **options)
    opened_sink = sink.open(identity(table), spark)
    try:
        with pytest.raises(UsageError, match=words):
            opened_sink.accepts(changes_of(spark, "('a','1',1,true)").schema)
    finally:
        opened_sink.close()


def test_a_memory_of_deletions_by_another_order_is_refused(database: Database, table: str, spark: Any) -> None:
    options = {"mode": "upsert", "key": "key", "delete": "gone"}
    with opened(database, table, spark, **options, order_by="at") as deliver:
        deliver(changes_of(spark, "('a','1',1,true)"), 0)
    with opened(database, table, spark, **options, order_by="value") as deliver:
        with pytest.raises(UsageError, match=f"atonce_deleted_{table}.* cannot be compared.*DROP TABLE"):
            deliver(changes_of(spark, "('a','1',1,true)"), 1)


def test_a_transform_that_a_table_cannot_order_is_refused_by_its_type(
    postgres: Database, table: str, spark: Any
) -> None:
    postgres.run(f"CREATE TABLE {table} (key text PRIMARY KEY, value text, at json)")
    with opened(postgres, table, spark, create=False, mode="upsert", key="key", order_by="at") as deliver:
        with pytest.raises(UsageError, match=r"column at .* json has no order"):
            deliver(changes_of(spark, "('a','1','{}')", "key, value, at"), 0)


@pytest.mark.parametrize(
    "index",
    [
        "CREATE UNIQUE INDEX {table}_i ON {table} (key) WHERE at > 0",
        "CREATE UNIQUE INDEX {table}_i ON {table} (lower(key))",
        "CREATE INDEX {table}_i ON {table} (key)",
        "CREATE UNIQUE INDEX {table}_i ON {table} (key, at)",
    ],
)
def test_an_index_that_an_upsert_cannot_go_by_is_refused_at_the_start(
    database: Database, table: str, spark: Any, index: str
) -> None:
    if database.kind == "duckdb" and "WHERE" in index:
        pytest.skip("DuckDB has no partial indexes")
    database.run(f"CREATE TABLE {table} (key varchar(9), value varchar(9), at int)")
    database.run(index.format(table=table))
    _refused_for_its_index(database, table, spark)


@pytest.mark.parametrize(
    "index",
    [
        "ALTER TABLE {table} ADD UNIQUE (key) DEFERRABLE INITIALLY DEFERRED",
        "CREATE UNIQUE INDEX {table}_i ON {table} (key); "
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{table}_i'::regclass",
    ],
)
def test_postgres_a_deferrable_or_invalid_index_is_refused_at_the_start(
    postgres: Database, table: str, spark: Any, index: str
) -> None:
    postgres.run(f"CREATE TABLE {table} (key varchar(9), value varchar(9), at int)")
    postgres.run(index.format(table=table))
    _refused_for_its_index(postgres, table, spark)


def _refused_for_its_index(database: Database, table: str, spark: Any) -> None:
    sink = database.sink(table, create=False, mode="upsert", key="key", order_by="at").open(identity(table), spark)
    try:
        with pytest.raises(UsageError, match="needs a unique index on exactly these columns"):
            sink.accepts(changes_of(spark, "('a','1',1)", "key, value, at").schema)
    finally:
        sink.close()
