"""Options of the database sinks: what goes together, what is said, and what is never said: secrets."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from atonce.connectors.sql.postgres.sink import Postgres
from atonce.connectors.sql.postgres.types import TableColumn, for_existing_column, for_new_table
from atonce.connectors.sql.sqlite.sink import SQLite
from atonce.errors import UnreachableError, UsageError
from atonce.guarantee import Guarantee, SourceTraits, strongest
from atonce.local.ports import free_port

SECRET = "postgresql://me:hunter2@db.example:5433/app"


@pytest.mark.parametrize("url", [SECRET, "host=db.example port=5433 dbname=app password=hunter2"])
def test_secrets_are_in_no_text_about_a_sink(url: str) -> None:
    sink = Postgres(url, "orders")
    for text in (repr(sink), sink.describe(), str(sink.traits())):
        assert "hunter2" not in text
    assert "db.example:5433/app" in sink.describe()
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_unreachable_database_is_named_without_its_password() -> None:
    port = free_port()
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port}") as refused:
        Postgres(f"postgresql://me:hunter2@127.0.0.1:{port}/app", "orders").check()
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "merge"}, "mode 'merge' is not one of: append, upsert"),
        ({"mode": "upsert"}, "needs key="),
        ({"key": "id"}, "belongs to mode"),
        ({"on_error": "ignore"}, "is not one of: stop, dead-letter"),
        ({"dedupe_keep": "7d"}, "belongs to dedupe="),
        ({"dedupe": "id", "dedupe_keep": "soon"}, "dedupe_keep 'soon' is not an age"),
        ({"delete": "gone"}, 'delete= belongs to mode="upsert"'),
        ({"soft_delete": "gone"}, 'soft_delete= belongs to mode="upsert"'),
        ({"mode": "upsert", "key": "id", "delete": "a", "soft_delete": "b"}, "one of the two"),
        ({"mode": "upsert", "key": "id", "delete": "id"}, "is also named as key"),
        ({"mode": "upsert", "key": "id", "deletes_keep": "7d"}, "belongs to delete=, which is not given"),
        ({"mode": "upsert", "key": "id", "delete": "gone", "deletes_keep": "7d"}, "delete= with order_by="),
        (
            {"mode": "upsert", "key": "id", "order_by": "at", "delete": "gone", "deletes_keep": "nan"},
            "deletes_keep 'nan' is not an age",
        ),
    ],
)
@pytest.mark.parametrize("kind", [Postgres, SQLite])
def test_wrong_options_are_refused_with_what_is_allowed(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kind("where", "orders", **options)


def test_sqlite_in_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a file"):
        SQLite(":memory:", "orders")


@pytest.mark.parametrize("sink", [Postgres(SECRET, "orders"), SQLite("out.db", "orders")])
def test_every_database_sink_reaches_effectively_once(sink: Any) -> None:
    kafka = SourceTraits(name="kafka", replayable=True, ordered=True, why="offsets")
    assert strongest(kafka, sink.traits()).strongest is Guarantee.EFFECTIVELY_ONCE
    assert not sink.traits().idempotent


def test_upsert_and_dedupe_absorb_repetition() -> None:
    assert Postgres(SECRET, "t", mode="upsert", key=["a", "b"]).traits().idempotent
    assert Postgres(SECRET, "t", dedupe="id", dedupe_keep="7d").keep_s == 7 * 86400


def test_deletions_are_remembered_for_a_week_unless_told_otherwise() -> None:
    options = {"mode": "upsert", "key": "id", "order_by": "at", "delete": "gone"}
    assert Postgres(SECRET, "t", **options).deletes_keep_s == 7 * 86400
    assert SQLite("out.db", "t", deletes_keep="1h", **options).deletes_keep_s == 3600
    assert not SQLite("out.db", "t", mode="upsert", key="id", delete="gone").remembers_deletes


def test_what_becomes_of_equal_orders_and_of_late_rows_is_said() -> None:
    needs = " ".join(Postgres(SECRET, "t", mode="upsert", key="id", order_by="at", delete="gone").traits().needs)
    assert "At equal (at) the larger (topic, partition, offset) wins" in needs
    assert "later than 7d after a newer deletion" in needs


def column(wire: str, sql: str, **more: Any) -> TableColumn:
    return TableColumn(name="c", wire=wire, sql=sql, required=False, default=False, **more)


@pytest.mark.parametrize(
    ("spark", "target", "fits"),
    [
        ("int", column("int8", "bigint"), True),
        ("bigint", column("int4", "integer"), False),
        ("decimal(10,2)", column("numeric", "numeric"), True),
        ("decimal(10,2)", column("numeric", "numeric(12,2)", precision=12, scale=2), True),
        ("decimal(10,4)", column("numeric", "numeric(12,2)", precision=12, scale=2), False),
        ("bigint", column("numeric", "numeric(10,0)", precision=10, scale=0), False),
        ("string", column("jsonb", "jsonb"), True),
        ("string", column("int4", "integer"), False),
        ("timestamp", column("timestamp", "timestamp without time zone"), False),
        ("binary", column("text", "text"), False),
    ],
)
def test_a_column_fits_only_if_every_value_does(spark: str, target: TableColumn, fits: bool) -> None:
    if fits:
        assert for_existing_column("c", spark, target).name == "c"
    else:
        with pytest.raises(UsageError, match="column c"):
            for_existing_column("c", spark, target)


def test_new_tables_get_postgresqls_own_types() -> None:
    made = {
        t: for_new_table("c", t, required=False).sql
        for t in ("bigint", "decimal(10,2)", "string", "timestamp", "tinyint")
    }
    assert list(made.values()) == ["bigint", "numeric(10,2)", "text", "timestamp with time zone", "smallint"]
    with pytest.raises(UsageError, match="struct<a:int>"):
        for_new_table("c", "struct<a:int>", required=False)
