"""One body for every sink: what cannot be delivered is kept with its input record, once, and the rest is delivered.

The registry is its list: a sink that is added there is held to this, or the first test here fails.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.connectors.lake.aside import LakeLetters
from atonce.delivery.events import Step
from atonce.delivery.letters import WHOLE
from atonce.errors import RefusedError, UndeliverableRow, UsageError
from atonce.plugins import plugins
from tests.contract.connectors.systems import IcebergSystem
from tests.contract.pipeline.parts import Watcher, consume

SCHEMA = "id bigint, items array<string>"
NOT_UTF8 = "CAST(X'FF' AS STRING)"
HUGE = "repeat('x', 2000000)"
AT_MS = time.time_ns() // 1_000_000 - 60_000
"""Of the first record; young enough that no retention takes it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A sink with dead letters, and what a reader finds in it."""

    sink: Callable[..., Any]
    values: Callable[[], list[str]]
    undeliverable: str = NOT_UTF8
    """An expression that gives a value which this sink cannot take."""


def _kafka(request: pytest.FixtureRequest, name: str) -> Place:
    servers = request.getfixturevalue("embedded")

    def sink(**options: Any) -> Any:
        if options.get("on_error") == "dead-letter":
            options["dead_letter"] = f"{name}-dead"
        return atonce.Kafka(f"{name}-out", servers=servers, **options)

    return Place(sink, lambda: [value or "" for _, value in consume(servers, f"{name}-out")], HUGE)


def _postgres(request: pytest.FixtureRequest, name: str) -> Place:
    import psycopg

    url = request.getfixturevalue("postgres_url")

    def values() -> list[str]:
        with psycopg.connect(url) as connection:
            return [row[0] for row in connection.execute(f"SELECT value FROM {name}".encode())]

    return Place(lambda **options: atonce.Postgres(url, table=name, create=True, **options), values)


def _sqlite(request: pytest.FixtureRequest, name: str) -> Place:
    file = request.getfixturevalue("scratch") / "out.db"

    def values() -> list[str]:
        with sqlite3.connect(file) as connection:
            return [row[0] for row in connection.execute(f"SELECT value FROM {name}")]

    return Place(lambda **options: atonce.SQLite(file, table=name, **options), values)


def _duckdb(request: pytest.FixtureRequest, name: str) -> Place:
    import duckdb

    file = request.getfixturevalue("scratch") / "out.duckdb"

    def values() -> list[str]:
        with duckdb.connect(str(file)) as connection:
            return [row[0] for row in connection.execute(f"SELECT value FROM {name}").fetchall()]

    return Place(lambda **options: atonce.DuckDB(file, table=name, **options), values)


def _delta(request: pytest.FixtureRequest, name: str) -> Place:
    from deltalake import DeltaTable

    path = request.getfixturevalue("scratch") / name
    return Place(
        lambda **options: atonce.Delta(path, **options),
        lambda: DeltaTable(str(path)).to_pyarrow_table().column("value").to_pylist(),
    )


def _iceberg(request: pytest.FixtureRequest, name: str) -> Place:
    system = IcebergSystem(request.getfixturevalue("scratch"))
    return Place(
        lambda **options: system.sink(name, **options),
        lambda: [row["value"] for row in system.read(name)],
    )


PLACES = {
    "kafka": _kafka,
    "postgres": _postgres,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
    "delta": _delta,
    "iceberg": _iceberg,
}


@pytest.fixture
def name() -> str:
    return f"letters_{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=[name for name, plugin in plugins("sink").items() if plugin.package == "atonce"])
def place(request: pytest.FixtureRequest, name: str) -> Place:
    return PLACES[request.param](request, name)


@pytest.fixture
def topic(embedded: str, name: str) -> str:
    """Four records in one partition: fine, malformed, with two rows that cannot be delivered, a tombstone."""
    from confluent_kafka import Producer

    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
    producer = Producer({"bootstrap.servers": embedded})
    for number, value in enumerate(
        (b'{"id": 1, "items": ["a", "b"]}', b'{"id": 1, "it', b'{"id": 2, "items": ["c", "bad", "d", "bad"]}', None)
    ):
        producer.produce(
            name,
            key=f"k{number}",
            value=value,
            partition=1,
            headers=[("trace", b"\x00\xff"), ("none", None)],
            timestamp=AT_MS + number,
        )
    assert producer.flush(30) == 0
    return name


def pipeline(topic: str, embedded: str, scratch: Path, bad: str, sink: Any) -> atonce.Pipeline:
    """A row for each item; `bad` is an expression."""
    item = f"IF(item = 'bad', {bad}, item) AS value"
    return (
        atonce.Pipeline(topic, checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka(topic, servers=embedded))
        .parse("json", SCHEMA)
        .transform(
            f"SELECT CAST(value.id AS STRING) AS key, {item} FROM input LATERAL VIEW explode(value.items) AS item"
        )
        .write(sink)
    )


@pytest.mark.usefixtures("spark")
def test_letter_has_the_input_record_and_is_kept_once_whatever_runs_again(
    topic: str, embedded: str, scratch: Path, place: Place
) -> None:
    made = pipeline(topic, embedded, scratch, place.undeliverable, place.sink(on_error="dead-letter"))
    assert made.dead_letters() == []
    started = made.start(available_now=True)
    started.wait()
    assert started.numbers.snapshot().dead_letters == 3
    assert sorted(place.values()) == ["a", "b", "c", "d"]
    kept = [each.letter for each in made.dead_letters()]
    assert [(each.place, each.index) for each in kept] == [
        ((topic, 1, 1), WHOLE),
        ((topic, 1, 2), 1),
        ((topic, 1, 2), 3),
    ]
    malformed, row, _ = kept
    assert malformed.row is None
    assert "JSON" in malformed.reason
    assert malformed.original is not None
    assert (malformed.original.key, malformed.original.value) == (b"k1", b'{"id": 1, "it')
    assert malformed.original.headers == (("trace", b"\x00\xff"), ("none", None))
    assert malformed.original.timestamp_ms == AT_MS + 1
    assert row.row is not None
    assert row.original is not None
    assert row.original.value == b'{"id": 2, "items": ["c", "bad", "d", "bad"]}'
    made.reset("earliest")
    made.run(available_now=True)
    assert len(made.dead_letters()) == 3, "a reset does not double them"


@pytest.mark.usefixtures("spark")
def test_record_that_cannot_be_read_stops_the_pipeline_where_nothing_is_put_aside(
    topic: str, embedded: str, scratch: Path, place: Place
) -> None:
    with pytest.raises(UndeliverableRow, match=r"a record cannot be read: not JSON.*partition 1, offset 1"):
        pipeline(topic, embedded, scratch, "item", place.sink()).run(available_now=True)


@pytest.mark.usefixtures("spark")
def test_replay_delivers_each_letter_once_by_todays_transform(
    topic: str, embedded: str, scratch: Path, place: Place
) -> None:
    keeping = place.sink(on_error="dead-letter")
    made = pipeline(topic, embedded, scratch, place.undeliverable, keeping)
    made.run(available_now=True)
    again = made.replay_dead_letters()
    assert (again.replayed, again.failed) == (0, 3), "nothing has changed"
    assert [kept.attempts for kept in made.dead_letters()] == [2, 2, 2]
    assert sorted(place.values()) == ["a", "b", "c", "d"]
    mended = pipeline(topic, embedded, scratch, "'mended'", keeping)
    done = mended.replay_dead_letters(lambda kept: kept.letter.index == 3)
    assert (done.replayed, done.rows, done.failed) == (1, 1, 0)
    done = mended.replay_dead_letters()
    assert (done.replayed, done.rows, done.failed) == (1, 1, 1), "the malformed record still is"
    assert mended.replay_dead_letters().replayed == 0, "once each"
    assert sorted(place.values()) == ["a", "b", "c", "d", "mended", "mended"]
    waiting = [(kept.letter.index, kept.attempts) for kept in made.dead_letters() if kept.replayed_at is None]
    assert waiting == [(WHOLE, 4)]


@pytest.mark.usefixtures("spark")
def test_letters_of_records_that_are_delivered_again_are_what_came_of_them_the_last_time(
    topic: str, embedded: str, scratch: Path, place: Place
) -> None:
    keeping = place.sink(on_error="dead-letter")
    made = pipeline(topic, embedded, scratch, place.undeliverable, keeping)
    made.run(available_now=True)
    mended = pipeline(topic, embedded, scratch, "'mended'", keeping)
    mended.reset("earliest")
    mended.run(available_now=True)
    assert waiting(mended) == [WHOLE], "their rows are delivered, and a replay would double them"
    made.reset("earliest")
    made.run(available_now=True)
    assert waiting(made) == [WHOLE, 1, 3], "put aside again, they wait again"
    made.reset("earliest")
    assert mended.replay_dead_letters().replayed == 0, "the pipeline itself will deliver them"


def waiting(made: atonce.Pipeline) -> list[int]:
    """The index of each letter that nobody has delivered."""
    return [kept.letter.index for kept in made.dead_letters() if kept.replayed_at is None]


@pytest.mark.usefixtures("spark")
def test_letters_in_a_table_of_their_own_follow_what_the_output_says(
    request: pytest.FixtureRequest, topic: str, embedded: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta: the batch dies behind its letters, and the replay before its marks."""
    place = _delta(request, topic)
    keeping = place.sink(on_error="dead-letter")
    made = pipeline(topic, embedded, scratch, place.undeliverable, keeping)
    mended = pipeline(topic, embedded, scratch, "'mended'", keeping)
    with pytest.raises(RefusedError, match="dies here"):
        replace(made, observer=Watcher(at=Step.PUT_ASIDE, act=dies)).run(available_now=True)
    assert waiting(made) == [], "their batch was never committed"
    made.run(available_now=True)
    with monkeypatch.context() as patched, pytest.raises(RefusedError, match="dies here"):
        patched.setattr(LakeLetters, "settle", lambda self, recorded: dies() if recorded else None)
        mended.replay_dead_letters()
    assert waiting(made) == [WHOLE, 1, 3]
    assert sorted(place.values()) == ["a", "b", "c", "d", "mended", "mended"]
    assert mended.replay_dead_letters().rows == 0
    assert waiting(made) == [WHOLE]
    assert sorted(place.values()) == ["a", "b", "c", "d", "mended", "mended"]


def dies(_event: object = None) -> None:
    raise RefusedError("dies here")


REFUSING = {
    "sqlite": "CREATE TABLE {} (key TEXT, value TEXT CHECK (value <> 'refused'))",
    "duckdb": "CREATE TABLE {} (key VARCHAR, value VARCHAR CHECK (value <> 'refused'))",
    "postgres": "CREATE TABLE {} (key text, value text CHECK (value <> 'refused'))",
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", REFUSING)
def test_number_of_a_row_that_the_database_refused_is_taken_when_its_letter_is_replayed(
    request: pytest.FixtureRequest, topic: str, embedded: str, scratch: Path, kind: str
) -> None:
    place = PLACES[kind](request, topic)
    make(request, kind, REFUSING[kind].format(topic))
    keeping = place.sink(on_error="dead-letter", dedupe="number")
    numbered = ", hash(item, value.id, offset) AS number FROM input"

    def of(bad: str) -> atonce.Pipeline:
        made = pipeline(topic, embedded, scratch, bad, keeping)
        return replace(made, transforms=tuple(str(each).replace(" FROM input", numbered) for each in made.transforms))

    of("'refused'").run(available_now=True)
    assert sorted(place.values()) == ["a", "b", "c", "d"]
    done = of("'mended'").replay_dead_letters(lambda kept: kept.letter.index == 1)
    assert (done.replayed, done.rows) == (1, 1)
    assert sorted(place.values()) == ["a", "b", "c", "d", "mended"]


def make(request: pytest.FixtureRequest, kind: str, ddl: str) -> None:
    if kind == "postgres":
        import psycopg

        with psycopg.connect(request.getfixturevalue("postgres_url")) as connection:
            connection.execute(ddl.encode())
        return
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(str(request.getfixturevalue("scratch") / "out.duckdb")) as file:
            file.execute(ddl)
        return
    with sqlite3.connect(request.getfixturevalue("scratch") / "out.db") as file:
        file.execute(ddl)


@pytest.mark.usefixtures("spark")
def test_letters_of_rows_that_never_visit_the_jvm_are_the_same(
    request: pytest.FixtureRequest, embedded: str, scratch: Path, name: str
) -> None:
    """Parse, transform and the upsert's part run on columns in the source's tasks; the server refuses a row as well."""
    from confluent_kafka import Producer

    make(request, "postgres", f"CREATE TABLE {name} (id int PRIMARY KEY, name text CHECK (name <> 'x'), seq bigint)")
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=1)
    producer = Producer({"bootstrap.servers": embedded})
    for value in ('{"id": 1, "name": "a"}', "{", '{"id": 2, "name": "x"}', '{"id": 3, "name": "\\u0000"}'):
        producer.produce(name, value=value)
    assert producer.flush(30) == 0
    keeping = atonce.Postgres(
        request.getfixturevalue("postgres_url"),
        table=name,
        mode="upsert",
        key="id",
        order_by="seq",
        on_error="dead-letter",
    )

    def of(column: str) -> atonce.Pipeline:
        return (
            atonce.Pipeline(name, checkpoint=str(scratch / "checkpoint"))
            .read(atonce.Kafka(name, servers=embedded))
            .parse("json", "id int, name string")
            .transform(f"SELECT value.id, {column} AS name, offset AS seq FROM input")
            .write(keeping)
        )

    made = of("value.name")
    assert "the sink's part on columns in the source's tasks" in made.explain(ask=True)
    made.run(available_now=True)
    kept = [each.letter for each in made.dead_letters()]
    assert [(each.place[2], each.index) for each in kept] == [(1, WHOLE), (2, 0), (3, 0)]
    assert [each.original and each.original.value for each in kept][1] == b'{"id": 2, "name": "x"}'
    assert (made.replay_dead_letters().failed, of("'mended'").replay_dead_letters().rows) == (3, 2)


@pytest.mark.usefixtures("spark")
def test_replay_into_an_upsert_without_an_order_is_refused(topic: str, embedded: str, scratch: Path) -> None:
    sink = atonce.SQLite(scratch / "out.db", table=topic, mode="upsert", key="key", on_error="dead-letter")
    with pytest.raises(UsageError, match="order_by"):
        pipeline(topic, embedded, scratch, "item", sink).replay_dead_letters()
