"""A bounded part of the input beside a running pipeline: exact together, or refused."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import RefusedError, UsageError
from tests.contract.connectors.systems import IcebergSystem
from tests.contract.pipeline.parts import OUTPUTS, Output, produce

HALF, ALL = 30, 60


@pytest.fixture
def topic(embedded: str) -> str:
    """Half of the records; record i stands in partition i % 2."""
    name = f"backfill-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(embedded, name, range(HALF), partitions=2)
    return name


def pipeline(topic: str, servers: str, scratch: Path, sink: Any, start: str = "latest") -> atonce.Pipeline:
    made = atonce.Pipeline(topic, checkpoint=str(scratch / "live"), say=lambda _: None)
    return (
        made.read(atonce.Kafka(topic, servers=servers, start=start, options={"maxOffsetsPerTrigger": "10"}))
        .transform("SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value, offset FROM input")
        .write(sink)
    )


def plain(made: atonce.Pipeline) -> atonce.Pipeline:
    return made.transform("SELECT value FROM input")


def rows(scratch: Path, table: str, column: str = "value") -> list[Any]:
    with sqlite3.connect(scratch / "out.db") as connection:
        return sorted(value for (value,) in connection.execute(f"SELECT {column} FROM {table}"))


def names(scratch: Path) -> list[str]:
    return rows(scratch, "atonce_ledger", "name")


def table(scratch: Path, **options: Any) -> atonce.SQLite:
    return atonce.SQLite(scratch / "out.db", table="rows", **options)


def delta_output(name: str, servers: str, scratch: Path, url: str) -> Output:
    from deltalake import DeltaTable

    def values() -> list[str]:
        found: list[str] = DeltaTable(str(scratch / "delta")).to_pyarrow_table().column("value").to_pylist()
        return found

    return Output(atonce.Delta(scratch / "delta"), values)


def iceberg_output(name: str, servers: str, scratch: Path, url: str) -> Output:
    system = IcebergSystem(scratch)
    return Output(system.sink("out"), lambda: [row["value"] for row in system.read("out")])


@pytest.mark.parametrize(
    "kind", ["kafka", "postgres", "sqlite", "delta", pytest.param("iceberg", marks=pytest.mark.soak)]
)
def test_history_before_the_live_pipeline_is_appended_once(
    request: pytest.FixtureRequest, embedded: str, topic: str, scratch: Path, spark: Any, kind: str
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    output = {**OUTPUTS, "delta": delta_output, "iceberg": iceberg_output}[kind](topic, embedded, scratch, url)
    live = plain(pipeline(topic, embedded, scratch, output.sink))
    live.run(available_now=True)  # begins at the end of what is there
    produce(embedded, topic, range(HALF, ALL), partitions=2)
    live.run(available_now=True)
    assert len(output.values()) == ALL - HALF
    live.backfill(f"{topic}-history").run()
    assert sorted(output.values()) == sorted(f"value {i}" for i in range(ALL))
    live.backfill(f"{topic}-history").run()
    assert len(output.values()) == ALL, "it is done"
    with pytest.raises(UsageError, match="delivers some of this range itself"):
        live.backfill(f"{topic}-more", until="latest").run()


def test_a_range_that_the_live_pipeline_delivers_itself_is_refused_and_leaves_nothing_behind(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    live = plain(pipeline(topic, embedded, scratch, table(scratch)))
    backfill = live.backfill("history", until="latest")
    with pytest.raises(UsageError, match="has no ledger yet, so nothing says where it will begin"):
        backfill.run()
    assert not (scratch / "out.db").exists()
    live.run(available_now=True)
    produce(embedded, topic, range(HALF, ALL), partitions=2)
    with pytest.raises(UsageError) as refused:
        backfill.run()
    assert f"{topic}/0: it began at 15, and this ends at 30" in str(refused.value)
    assert "Next: --until first, or another output (--into)" in str(refused.value)
    with pytest.raises(UsageError, match="delivers some of this range itself"):
        live.backfill("history", until="latest", into="ROWS").run()  # the same table, to SQLite
    assert names(scratch) == [topic]


def test_a_reset_does_not_make_the_table_forget_where_the_pipeline_began(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    live = plain(pipeline(topic, embedded, scratch, table(scratch), start="earliest"))
    live.run(available_now=True)
    live.reset("latest")
    with pytest.raises(UsageError, match="it began at 0, and this ends at 15"):
        live.backfill("history", until="latest").run()
    assert len(rows(scratch, "rows")) == HALF


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "upsert", "key": "key"}, "without order_by its older rows would be written over newer ones"),
        ({"dedupe": "key", "dedupe_keep": "7d"}, r"numbers older than 7d are forgotten \(dedupe_keep\)"),
    ],
)
def test_a_table_in_which_the_overlap_would_show_is_refused(
    embedded: str, topic: str, scratch: Path, spark: Any, options: dict[str, Any], why: str
) -> None:
    live = pipeline(topic, embedded, scratch, table(scratch, **options), start="earliest")
    live.run(available_now=True)
    with pytest.raises(UsageError, match=why):
        live.backfill("history", until="latest").run()


@pytest.mark.parametrize(
    "options", [{"mode": "upsert", "key": "key", "order_by": "offset"}, {"dedupe": "key"}], ids=["upsert", "dedupe"]
)
def test_both_at_once_over_the_same_records_leave_each_of_them_once(
    embedded: str, topic: str, scratch: Path, spark: Any, options: dict[str, Any]
) -> None:
    live = pipeline(topic, embedded, scratch, table(scratch, **options), start="earliest")
    produce(embedded, topic, range(HALF, ALL), partitions=2)
    atonce.run(live, live.backfill("history", until="latest"), available_now=True)
    assert rows(scratch, "rows") == sorted(f"value {i}" for i in range(ALL))
    assert names(scratch) == sorted(["history", topic])


def test_a_range_between_two_positions_goes_into_another_table(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    live = plain(pipeline(topic, embedded, scratch, table(scratch), start="earliest"))
    live.run(available_now=True)
    live.backfill("part", start=f"{topic}/0=3", until=f"{topic}/0=5,{topic}/1=2", into="part").run()
    assert rows(scratch, "part") == sorted(["value 6", "value 8", "value 1", "value 3"])
    assert len(rows(scratch, "rows")) == HALF


def test_state_of_a_part_of_the_input_is_refused_beside_that_of_the_whole(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    sink = table(scratch, mode="upsert", key="digits", order_by="total")
    live = pipeline(topic, embedded, scratch, sink).transform(
        "SELECT length(value) AS digits, count(*) AS total FROM input GROUP BY length(value)"
    )
    with pytest.raises(UsageError, match="the transform keeps state"):
        live.backfill("history", start="earliest", until="latest").run()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (lambda t: {"start": "latest", "until": "earliest"}, "--from latest is behind --until earliest"),
        (lambda t: {"until": f"{t}/0=99"}, "ends at 15, before 99"),
        (lambda t: {"until": f"{t}/7=1"}, "is not part of the input"),
        (lambda t: {"until": "yesterday"}, "--until takes earliest, latest, a time"),
        (lambda t: {"start": "2026-01-01"}, "--from '2026-01-01' names no time zone"),
    ],
)
def test_a_range_that_makes_no_sense_is_told_in_one_sentence(
    embedded: str, topic: str, scratch: Path, spark: Any, said: Callable[[str], dict[str, str]], why: str
) -> None:
    live = plain(pipeline(topic, embedded, scratch, table(scratch)))
    with pytest.raises(UsageError, match=why):
        live.backfill("part", into="part", **{"until": "latest", **said(topic)}).run()


@pytest.mark.parametrize("kind", ["files", "table"])
def test_input_that_has_no_end_to_name_is_refused_in_one_sentence(scratch: Path, spark: Any, kind: str) -> None:
    source: Any = atonce.Files(str(scratch), format="text")
    if kind == "table":
        with sqlite3.connect(scratch / "in.db") as connection:
            connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
        source = atonce.Table(f"sqlite:///{scratch / 'in.db'}", "outbox")
    live = atonce.Pipeline("live", checkpoint=str(scratch / "live")).read(source).transform("SELECT value FROM input")
    with pytest.raises(UsageError, match="cannot be read up to an end, which a backfill needs"):
        live.write(table(scratch)).backfill("part", until="latest", into="part").run()
    assert not (scratch / "out.db").exists()


def test_a_name_that_is_taken_or_has_another_range_is_refused(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    live = plain(pipeline(topic, embedded, scratch, table(scratch), start="earliest"))
    live.run(available_now=True)
    other = replace(live, name=f"{topic}-other", checkpoint=str(scratch / "other"))
    other.run(available_now=True)
    before = rows(scratch, "atonce_ledger", "owner_epoch")
    with pytest.raises(UsageError, match="is a pipeline by itself, and a backfill of its name would take it over"):
        live.backfill(other.name, until="latest", into="part").run()
    live.backfill("part", until=f"{topic}/0=5,{topic}/1=5", into="part").run()
    with pytest.raises(UsageError, match=f"began before, {topic}/0 at 0, and --from says {topic}/0 at 9"):
        live.backfill("part", start=f"{topic}/0=9", until="latest", into="part").run()
    assert rows(scratch, "atonce_ledger", "owner_epoch")[: len(before)] == before, "nobody was fenced"
    live.backfill("part", until=f"{topic}/0=7,{topic}/1=5", into="part").run()
    assert len(rows(scratch, "part")) == 12, "a longer range goes on"


def test_a_range_that_ends_in_an_open_transaction_is_not_called_done(
    embedded: str, topic: str, scratch: Path, spark: Any
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": embedded, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value="value 30", partition=0)
    producer.flush(30)
    live = plain(pipeline(topic, embedded, scratch, table(scratch)))
    part = live.backfill("part", until=f"{topic}/0=16,{topic}/1=15", into="part")
    with pytest.raises(RefusedError, match=f"a transaction is still open there: {topic}/0: 15 of 16"):
        part.run()
    producer.commit_transaction(30)
    part.run()
    assert rows(scratch, "part") == sorted(f"value {i}" for i in range(HALF + 1))
