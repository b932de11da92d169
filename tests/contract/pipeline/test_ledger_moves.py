"""The ledger is moved, or the checkpoint goes back, under a running pipeline or between two runs (F33, F35)."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.offsets import Committed, TopicPartition, commit, committed
from atonce.client.operate.admin import create_topic
from atonce.delivery import deliver as delivery
from atonce.delivery.events import Event, Step
from atonce.errors import LedgerMismatch
from tests.contract.pipeline.parts import consume, produce

LEVELS = ["none", "at-most-once", "at-least-once", "effectively-once"]
RECORDS = 60
ALL = sorted(f"value {i}" for i in range(RECORDS))


def filled(servers: str, records: int = RECORDS) -> str:
    name = f"moves_{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(servers, name, range(records), partitions=2)
    return name


def group_of(servers: str, name: str) -> dict[TopicPartition, Committed]:
    """Asked by partition: what a transaction has written is waited for until its markers are there."""
    with Cluster(servers) as cluster:
        return committed(cluster, name, [TopicPartition(name, partition) for partition in (0, 1)])


class Restored:
    """Keeps what the store holds after batch 1, and brings it back after batch 2."""

    def __init__(self, keep: Callable[[], Any], bring_back: Callable[[Any], None]) -> None:
        self._keep, self._bring_back = keep, bring_back
        self._kept: Any = None
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if event.step is Step.DELIVERED and event.batch_id == 1 and self._kept is None:
            self._kept = self._keep()
        if event.step is Step.DELIVERED and event.batch_id == 2 and self._kept is not None:
            kept, self._kept = self._kept, ()
            if kept:
                self._bring_back(kept)


def pipeline(name: str, level: str, servers: str, scratch: Path, sink: Any, observer: Any) -> atonce.Pipeline:
    source = atonce.Kafka(name, servers=servers, options={"maxOffsetsPerTrigger": "10"})
    made = atonce.Pipeline(name, level, checkpoint=str(scratch / name), observer=observer, say=lambda _: None)
    return made.read(source).transform("SELECT CAST(value AS STRING) AS value FROM input").write(sink)


@contextmanager
def opened(kind: str, where: str) -> Iterator[Any]:
    if kind == "sqlite":
        connection = sqlite3.connect(where, timeout=30)
        with connection:
            yield connection
        connection.close()
    else:
        with psycopg.connect(where) as made:
            yield made


@pytest.mark.parametrize(
    ("broker", "kind", "level"),
    [
        *(("embedded", kind, level) for kind in ("sqlite", "postgres") for level in LEVELS),
        ("apache_kafka", "postgres", "effectively-once"),
    ],
)
def test_database_that_goes_back_under_a_running_pipeline_is_resumed_from(
    request: pytest.FixtureRequest, scratch: Path, spark: Any, broker: str, kind: str, level: str
) -> None:
    """F33: output and ledger go back together, so what the ledger says is what the output holds."""
    servers = request.getfixturevalue(broker)
    name = filled(servers)
    where = str(scratch / "out.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    make = atonce.SQLite if kind == "sqlite" else atonce.Postgres
    mark = "?" if kind == "sqlite" else "%s"

    def keep() -> Any:
        with opened(kind, where) as connection:
            rows = connection.execute(f"SELECT value FROM {name}").fetchall()
            return rows, connection.execute(f"SELECT * FROM atonce_ledger WHERE name = '{name}'").fetchone()

    def bring_back(kept: Any) -> None:
        rows, row = kept
        with opened(kind, where) as connection:
            connection.execute(f"DELETE FROM {name}")
            for each in rows:
                connection.execute(f"INSERT INTO {name} (value) VALUES ({mark})", each)
            connection.execute(f"DELETE FROM atonce_ledger WHERE name = '{name}'")
            connection.execute(f"INSERT INTO atonce_ledger VALUES ({', '.join([mark] * len(row))})", row)

    watcher = Restored(keep, bring_back)
    sink = make(where, table=name, create=True, timer_s=0.02)
    pipeline(name, level, servers, scratch, sink, watcher).run(available_now=True)
    with opened(kind, where) as connection:
        found = Counter(row[0] for row in connection.execute(f"SELECT value FROM {name}").fetchall())
    if level == "none":
        return
    assert sorted(found) == ALL, "lost"
    if level != "at-least-once":  # there output goes first, so the batch that met the moved ledger comes again
        assert sorted(found.elements()) == ALL, "doubled"
    assert any(event.step is Step.RETRYING for event in watcher.events), "it was not noticed"


@pytest.mark.parametrize("level", LEVELS)
def test_group_that_goes_back_under_a_running_pipeline_is_noticed(
    kafka_servers: str, scratch: Path, spark: Any, level: str
) -> None:
    """F33: the group's offsets stand apart from the output: going on could double it, so it is refused where it may not."""
    name = filled(kafka_servers)

    def bring_back(kept: Any) -> None:
        group_of(kafka_servers, name)
        with Cluster(kafka_servers) as cluster:
            commit(cluster, name, kept)

    sink = atonce.Kafka(f"{name}-out", servers=kafka_servers, auto_commit_interval_ms=20)
    made = pipeline(
        name, level, kafka_servers, scratch, sink, Restored(lambda: group_of(kafka_servers, name), bring_back)
    )
    if level in ("at-most-once", "effectively-once"):
        with pytest.raises(LedgerMismatch, match=rf"'{name}/0': 10.*'{name}/0': 15"):
            made.run(available_now=True)
        with pytest.raises(LedgerMismatch, match=f"atonce reset {name}"):
            made.run(available_now=True)
    else:
        made.run(available_now=True)
    found = Counter(value for _, value in consume(kafka_servers, f"{name}-out"))
    if level in ("at-most-once", "effectively-once"):
        assert sorted(found.elements()) == sorted(f"value {i}" for i in range(30)), "three batches, and nothing twice"
    assert level != "at-least-once" or set(found) == set(ALL)


def test_database_that_goes_back_in_quiet_times_is_noticed_without_input(
    embedded: str, scratch: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LOOK_AFTER_S", 0.1)
    name = filled(embedded, 20)
    where = str(scratch / "out.db")
    told: list[Event] = []
    made = pipeline(name, "effectively-once", embedded, scratch, atonce.SQLite(where, table=name), None)

    class Once:
        """Empties output and ledger as a restore to before the first batch does; stops when all is there again."""

        def on_event(self, event: Event) -> None:
            told.append(event)
            if event.step is Step.DELIVERED and event.batch_id == 1:
                if len([each for each in told if each.step is Step.CLAIMED]) == 1:
                    threading_timer(self.go_back)
                else:
                    run.stop()

        def go_back(self) -> None:
            with opened("sqlite", where) as connection:
                connection.execute(f"DELETE FROM {name}")
                connection.execute(
                    "UPDATE atonce_ledger SET sequence = 1, batch_id = -1, query_id = '', "
                    f"positions = '{{\"{name}/0\": 0, \"{name}/1\": 0}}', details = '{{}}'"
                )

    with replace(made, observer=Once()).running() as run:
        run.start()
        run.wait()
    with opened("sqlite", where) as connection:
        assert sorted(row[0] for row in connection.execute(f"SELECT value FROM {name}")) == sorted(
            f"value {i}" for i in range(20)
        )


def threading_timer(act: Callable[[], None]) -> None:
    """Out of the delivery's thread, which holds the sink."""
    import threading

    threading.Timer(0.3, act).start()


COUNTED = """
SELECT CAST(CAST(CAST(key AS STRING) AS INT) % 3 AS STRING) AS key, CAST(count(*) AS STRING) AS value
FROM input GROUP BY 1"""


def stateful(name: str, servers: str, scratch: Path, per_batch: int) -> atonce.Pipeline:
    source = atonce.Kafka(name, servers=servers, options={"maxOffsetsPerTrigger": str(per_batch)})
    made = atonce.Pipeline(
        name, checkpoint=str(scratch / name), say=lambda _: None, spark={"spark.sql.shuffle.partitions": "2"}
    )
    return made.read(source).transform(COUNTED).write(atonce.Kafka(f"{name}-out", servers=servers))


def test_stateful_pipeline_with_a_checkpoint_several_batches_old_goes_on_only_with_the_same_cuts(
    kafka_servers: str, scratch: Path, spark: Any
) -> None:
    """F35: batches that Spark cuts as before are executed into nothing; others would leave a state that nobody delivered."""
    name = filled(kafka_servers, 10)
    stateful(name, kafka_servers, scratch, 10).run(available_now=True)
    shutil.copytree(scratch / name, scratch / "old")
    produce(kafka_servers, name, range(10, 40), partitions=2)
    stateful(name, kafka_servers, scratch, 10).run(available_now=True)

    shutil.rmtree(scratch / name)
    shutil.copytree(scratch / "old", scratch / name)
    with pytest.raises(LedgerMismatch, match=rf"planned batch 1 .*'{name}/0': 20.* anew.*'{name}/0': 20.*another cut"):
        stateful(name, kafka_servers, scratch, 30).run(available_now=True)

    shutil.rmtree(scratch / name)
    (scratch / "old").rename(scratch / name)
    produce(kafka_servers, name, range(40, 60), partitions=2)
    stateful(name, kafka_servers, scratch, 10).run(available_now=True)
    newest: dict[str, int] = {}
    for key, value in consume(kafka_servers, f"{name}-out"):
        newest[str(key)] = max(newest.get(str(key), 0), int(value or 0))
    assert newest == {"0": 20, "1": 20, "2": 20}
