"""A sink that may forget what it acknowledged is refused before anything is made, or said aloud (rule: what can be asked)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.client.operate.durability import forgetful
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.local import file_systems
from atonce.local.servers.postgres import PostgresServer
from tests.contract.connectors.sql.database import Database


@pytest.mark.parametrize("which", ["{t}", "s_{t}.atonce_ledger", "s_{t}.atonce_seen_{t}", "s_{t}.{t}_dead_letter"])
def test_a_table_that_a_crash_empties_is_refused(postgres: Database, table: str, which: str) -> None:
    schema = f"s_{table}"
    sink = atonce.Postgres(postgres.where, table=f"{schema}.{table}", create=True)
    name = which.format(t=table) if "." in which else f"{schema}.{table}"
    with psycopg.connect(postgres.where) as connection:
        connection.execute(f"CREATE SCHEMA {schema}; CREATE UNLOGGED TABLE {name} (id bigint)".encode())
    with pytest.raises(UsageError, match=rf"table {name} at .* is UNLOGGED \(relpersistence=u\).*SET LOGGED"):
        sink.check()
    with psycopg.connect(postgres.where) as connection:
        connection.execute(f"ALTER TABLE {name} SET LOGGED".encode())
    sink.check()


def test_an_unlogged_partition_is_refused_too(postgres: Database, table: str) -> None:
    with psycopg.connect(postgres.where) as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint) PARTITION BY RANGE (id)".encode())
        connection.execute(f"CREATE UNLOGGED TABLE {table}_1 PARTITION OF {table} DEFAULT".encode())
    with pytest.raises(UsageError, match=f"table {table}_1 at .* is UNLOGGED"):
        atonce.Postgres(postgres.where, table=table).check()


@pytest.mark.parametrize("which", ["{t}", "atonce_seen_{t}", "{t}_1"])
def test_a_table_on_another_server_is_refused(postgres: Database, table: str, which: str) -> None:
    """The other server commits on its own, before or without the ledger."""
    name = which.format(t=table)
    with psycopg.connect(postgres.where) as connection:
        connection.execute(
            f"CREATE FOREIGN DATA WRAPPER w_{table}; CREATE SERVER {table} FOREIGN DATA WRAPPER w_{table}"
        )
        if which == "{t}_1":
            connection.execute(f"CREATE TABLE {table} (id bigint) PARTITION BY RANGE (id)".encode())
            made = f"CREATE FOREIGN TABLE {name} PARTITION OF {table} DEFAULT SERVER {table}"
        else:
            made = f"CREATE FOREIGN TABLE {name} (id bigint) SERVER {table}"
        connection.execute(made.encode())
    with pytest.raises(UsageError, match=f"table {name} at .* is a foreign table"):
        atonce.Postgres(postgres.where, table=table, create=True).check()


def test_a_server_that_may_forget_is_refused_where_anything_is_promised(table: str, scratch: Path) -> None:
    with PostgresServer(settings={"fsync": "off", "full_page_writes": "off"}) as server:
        sink = atonce.Postgres(server.url, table=table, create=True)
        source = atonce.Files(scratch, schema="value string")
        pipeline = atonce.Pipeline("p", checkpoint=str(scratch / "c")).read(source).write(sink)
        with pytest.raises(UsageError, match="fsync=off"):
            pipeline.run(available_now=True)
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT to_regclass('atonce_ledger')").fetchone() == (None,), "nothing was made"
        assert "warning     PostgreSQL at" in pipeline.explain(ask=True)
        assert "warning" not in pipeline.explain()
        for level in (Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE):
            with pytest.raises(UsageError, match=rf"has fsync=off: .*which {level.value} does not allow\. Next: set"):
                sink.cautions(level)
            with pytest.raises(UsageError, match="fsync=off"):
                atonce.deliver(sink, name="p", guarantee=level.value)
        assert [line.split(" has ")[1][:9] for line in sink.cautions(Guarantee.NONE)] == ["fsync=off", "full_page"]


def test_a_database_that_keeps_everything_is_not_spoken_of(database: Database, table: str) -> None:
    sink = database.sink(table)
    sink.check()
    assert sink.cautions(Guarantee.EFFECTIVELY_ONCE) == []


def test_sqlite_asks_what_its_file_stands_on(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = scratch / "out.db"
    sink = atonce.SQLite(file, table="rows")
    assert file_systems.kind_of(scratch) != ""
    assert file_systems.kind_of("/proc/self") == "proc"
    monkeypatch.setattr("atonce.connectors.sql.sqlite.sink.kind_of", lambda _: "nfs4")
    with pytest.raises(UsageError, match=r"on a network file system \(nfs4\)"):
        sink.check()
    assert not file.exists(), "refused before anything is made"
    monkeypatch.setattr("atonce.connectors.sql.sqlite.sink.kind_of", lambda _: "tmpfs")
    assert "gone with a reboot" in sink.cautions(Guarantee.NONE)[0]
    with pytest.raises(UsageError, match="needs a file"):
        atonce.SQLite("file::memory:?cache=shared", table="rows")


def test_explain_makes_no_file_when_it_asks(scratch: Path) -> None:
    pipeline = (
        atonce.Pipeline("p", checkpoint=str(scratch / "c"))
        .read(atonce.Table(scratch / "app.db", "outbox"))
        .write(atonce.SQLite(scratch / "out.db", table="rows"))
    )
    assert "warning     SQLite file" in pipeline.explain(ask=True)
    with sqlite3.connect(scratch / "app.db") as connection:
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY)")
    assert "is not INTEGER PRIMARY KEY AUTOINCREMENT" in pipeline.explain(ask=True)
    assert not (scratch / "out.db").exists()


def test_a_kafka_topic_that_may_forget_is_told(apache_kafka: str, embedded: str, table: str) -> None:
    with Cluster(apache_kafka) as cluster:
        create_topic(cluster, table, partitions=1, settings={"unclean.leader.election.enable": "true"})
        first, second = forgetful(cluster, inputs=[table], outputs=["nowhere"])
        assert f"topic {table} has unclean.leader.election.enable=true" in first
        assert f"topic {table} has replication factor 1" in second
    with Cluster(embedded) as cluster:
        create_topic(cluster, table, partitions=1)
        assert forgetful(cluster, inputs=[table], outputs=[table]) == [], "one synced copy is what it is for"
        create_topic(cluster, f"{table}-2", partitions=1, settings={"flush.messages": "10"})
        assert "flush.messages above 1" in forgetful(cluster, inputs=[], outputs=[f"{table}-2"])[0]
    text = (
        atonce.Pipeline("p", checkpoint="c")
        .read(atonce.Kafka(table, servers=apache_kafka))
        .write(atonce.Kafka(f"{table}-out", servers=apache_kafka))
        .explain(ask=True)
    )
    assert f"warning     topic {table} has unclean.leader.election.enable=true" in text


def test_one_copy_in_sync_is_told_of_outputs_and_of_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    from atonce.client.operate import admin

    states = [
        admin.TopicState(name=name, partitions=1, replication=3, internal=False)
        for name in ("in", "out", "__consumer_offsets")
    ]
    brokers = [admin.Broker(id=each, host="nowhere", port=9092) for each in range(3)]
    monkeypatch.setattr(admin, "brokers", lambda cluster: brokers)
    monkeypatch.setattr(admin, "topics", lambda cluster, internal: states)
    monkeypatch.setattr(admin, "topic_settings", lambda cluster, name: {"min.insync.replicas": "1"})
    cluster: Any = None
    told = forgetful(cluster, inputs=["in"], outputs=["out", "__consumer_offsets"])
    assert [line.split(":")[0] for line in told] == [
        "topic __consumer_offsets has min.insync.replicas=1 with 3 copies",
        "topic out has min.insync.replicas=1 with 3 copies",
    ]
