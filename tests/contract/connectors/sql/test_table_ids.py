"""Ids below the position would be passed over: where they could come from is asked and refused (F32, F34)."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import atonce
from atonce.connectors.sql.database import TableRef, refuse_another
from atonce.connectors.sql.postgres.outbox import PostgresTable
from atonce.connectors.sql.sqlite.outbox import SqliteTable
from atonce.connectors.sql.table import Table
from atonce.errors import LedgerMismatch, RefusedError, UsageError
from atonce.guarantee import Guarantee
from atonce.local.servers.postgres import PostgresServer

Run = Callable[[str], None]


@pytest.fixture
def sql(postgres_url: str) -> Run:
    def run(text: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(text.encode())

    return run


@pytest.fixture
def name() -> str:
    return f"outbox_{uuid.uuid4().hex[:10]}"


def postgres(url: str, table: str) -> PostgresTable:
    return PostgresTable(TableRef(url=url, table=table, column="id"))


MADE = {
    "serial": "CREATE TABLE {t} (id bigserial PRIMARY KEY, body text)",
    "identity": "CREATE TABLE {t} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)",
    "a sequence of its own": "CREATE SEQUENCE {t}_id_seq; "
    "CREATE TABLE {t} (id bigint DEFAULT nextval('{t}_id_seq') PRIMARY KEY, body text)",
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize(
    ("setting", "told"),
    [("CACHE 20", "has CACHE 20"), ("CYCLE", "has CYCLE"), ("INCREMENT -1 MINVALUE -99 START 1", "has INCREMENT -1")],
)
def test_a_sequence_that_gives_ids_below_those_that_were_read_is_refused(
    postgres_url: str, sql: Run, name: str, made: str, setting: str, told: str
) -> None:
    sql(made.format(t=name))
    table = Table(postgres_url, name)
    table.check()
    assert table.cautions(Guarantee.NONE) == []
    sql(f"ALTER SEQUENCE {name}_id_seq {setting}")
    with pytest.raises(UsageError, match=rf"sequence {name}_id_seq of {name}\.id {told}.*Next: ALTER SEQUENCE"):
        table.check()


def test_what_cannot_be_checked_is_said(postgres_url: str, sql: Run, name: str) -> None:
    sql(f"CREATE TABLE {name} (id bigint PRIMARY KEY DEFAULT (random() * 1e9)::bigint, body text)")
    sql(
        f"CREATE FUNCTION {name}_f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := 7; RETURN NEW; END'; "
        f"CREATE TRIGGER {name}_t BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_f()"
    )
    table = Table(postgres_url, name)
    table.check()
    first, second = table.cautions(Guarantee.NONE)
    assert "takes its ids from no sequence" in first
    assert f"the trigger {name}_t BEFORE INSERT" in second


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("CREATE TABLE {t}_c () INHERITS ({t})", r"column id of \S*_c has no unique index"),
        (
            "CREATE SEQUENCE {t}_2; CREATE TABLE {t}_c (PRIMARY KEY (id)) INHERITS ({t}); "
            "ALTER TABLE {t}_c ALTER id SET DEFAULT nextval('{t}_2')",
            "from several sequences, .*_2 and .*_id_seq",
        ),
        (
            "CREATE FOREIGN DATA WRAPPER {t}_w; CREATE SERVER {t}_s FOREIGN DATA WRAPPER {t}_w; "
            "CREATE FOREIGN TABLE {t}_c () INHERITS ({t}) SERVER {t}_s",
            "is a foreign table: who still writes to it cannot be seen",
        ),
        ("ALTER TABLE {t} SET UNLOGGED", r"is UNLOGGED \(relpersistence=u\): .*SET LOGGED"),
    ],
)
def test_a_table_whose_rows_could_escape_is_refused(
    postgres_url: str, sql: Run, name: str, more: str, told: str
) -> None:
    sql(MADE["serial"].format(t=name))
    sql(more.format(t=name))
    with pytest.raises(UsageError, match=told):
        Table(postgres_url, name).check()
    sql(f"DROP TABLE {name} CASCADE")


@pytest.mark.parametrize("kind", ["inherits", "partition", "grandchild"])
def test_an_open_writer_of_a_child_table_is_waited_for(postgres_url: str, sql: Run, name: str, kind: str) -> None:
    if kind == "partition":
        sql(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, body text) PARTITION BY RANGE (id)")
        sql(f"CREATE TABLE {name}_c PARTITION OF {name} DEFAULT")
    else:
        sql(MADE["serial"].format(t=name))
        parent = name
        if kind == "grandchild":
            parent = f"{name}_p"
            sql(f"CREATE TABLE {parent} (PRIMARY KEY (id)) INHERITS ({name})")
        sql(f"CREATE TABLE {name}_c (PRIMARY KEY (id)) INHERITS ({parent})")
    Table(postgres_url, name).check()
    table = postgres(postgres_url, name)
    with closing(psycopg.connect(postgres_url)) as older:
        older.execute(f"INSERT INTO {name}_c (body) VALUES ('older')".encode())
        sql(f"INSERT INTO {name} (body) VALUES ('newer')")
        assert table.safe_end(0, wait_s=0) == 0, "id 1 can still appear in the child"
        older.commit()
    assert table.safe_end(0, wait_s=10) == 3


@pytest.fixture(scope="module")
def two_phase() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"max_prepared_transactions": "4"}) as server:
        yield server


def test_a_prepared_transaction_is_waited_for_over_a_restart_of_the_server(two_phase: PostgresServer) -> None:
    url = two_phase.url
    with psycopg.connect(url) as connection:
        connection.execute(MADE["serial"].format(t="outbox").encode())
    table = postgres(url, "outbox")
    with psycopg.connect(url, autocommit=True) as older:
        older.execute("BEGIN")
        older.execute("INSERT INTO outbox (body) VALUES ('older')")
        with psycopg.connect(url) as newer:
            newer.execute("INSERT INTO outbox (body) VALUES ('newer')")
        assert table.safe_end(0, wait_s=0) == 0
        older.execute("PREPARE TRANSACTION 'older'")
    assert table.safe_end(0, wait_s=0) == 0, "prepared, and still holding its id"
    two_phase.restart()
    assert table.safe_end(0, wait_s=0) == 0, "the server knows it by another number now"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'older'")
    end = table.safe_end(0, wait_s=10)
    assert [row for batch in table.read(0, end) for row in batch["body"].to_pylist()] == ["older", "newer"]


HARMLESS = [
    "VACUUM FULL {t}",
    "CLUSTER {t} USING {t}_pkey",
    "ALTER TABLE {t} ADD COLUMN more text",
    "DELETE FROM {t}",
    "TRUNCATE {t}",
]


@pytest.mark.parametrize("what", HARMLESS)
def test_a_table_that_goes_on_with_its_ids_is_the_same_table(postgres_url: str, sql: Run, name: str, what: str) -> None:
    sql(MADE["serial"].format(t=name))
    sql(f"INSERT INTO {name} (body) SELECT 'x' FROM generate_series(1, 5)")
    table = postgres(postgres_url, name)
    before = table.condition()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(what.format(t=name).encode())
    assert table.condition() == before
    refuse_another(name, before.identity, 6, 0, table.condition())


@pytest.mark.parametrize(
    "what",
    [
        "TRUNCATE {t} RESTART IDENTITY",
        "DROP TABLE {t}; CREATE TABLE {t} (id bigserial PRIMARY KEY, body text)",
        "ALTER SEQUENCE {t}_id_seq RESTART WITH 1; DELETE FROM {t}",
        "ALTER TABLE {t} RENAME TO {t}_old; CREATE TABLE {t} (id bigserial PRIMARY KEY, body text)",
    ],
)
def test_ids_that_begin_again_are_noticed_even_when_they_are_past_the_position(
    postgres_url: str, sql: Run, name: str, what: str
) -> None:
    sql(MADE["serial"].format(t=name))
    sql(f"INSERT INTO {name} (body) SELECT 'x' FROM generate_series(1, 5)")
    table = postgres(postgres_url, name)
    known = table.condition().identity
    sql(what.format(t=name))
    sql(f"INSERT INTO {name} (body) SELECT 'y' FROM generate_series(1, 9)")
    with pytest.raises(RefusedError, match=rf"was made again, or its ids begin again: .*position 6 belongs to {known}"):
        refuse_another(name, known, 6, 0, table.condition())
    sql(f"DROP TABLE {name}")
    with pytest.raises(RefusedError, match="it is gone now"):
        refuse_another(name, known, 6, 0, table.condition())


def test_ids_that_were_set_back_are_noticed_by_the_next_one(postgres_url: str, sql: Run, name: str) -> None:
    sql(MADE["serial"].format(t=name))
    sql(f"INSERT INTO {name} (body) SELECT 'x' FROM generate_series(1, 5)")
    table = postgres(postgres_url, name)
    known = table.condition().identity
    sql(f"SELECT setval('{name}_id_seq', 2)")
    with pytest.raises(RefusedError, match="gives id 3 next, below position 6"):
        refuse_another(name, known, 6, 0, table.condition())
    refuse_another(name, known, 6, 6, table.condition())  # asked to begin there; nothing was read yet


# SQLite


@pytest.mark.parametrize(
    "columns",
    [
        "id INTEGER PRIMARY KEY, body TEXT",
        "id INTEGER UNIQUE, body TEXT",
        "id INTEGER PRIMARY KEY, body TEXT DEFAULT 'autoincrement' -- AUTOINCREMENT",
    ],
)
def test_a_sqlite_table_that_gives_ids_again_is_refused(scratch: Path, columns: str) -> None:
    path = scratch / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE outbox ({columns}\n)")
    with pytest.raises(UsageError, match=r"is not INTEGER PRIMARY KEY AUTOINCREMENT.*Next: make the table again"):
        Table(path, "outbox").check()


def new_outbox(path: Path, rows: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE "outbox" (id integer primary key autoincrement, body TEXT)')
        connection.executemany("INSERT INTO outbox (body) VALUES (?)", [("x",)] * rows)


def test_a_sqlite_table_or_file_that_was_made_again_is_noticed(scratch: Path) -> None:
    path = scratch / "app.db"
    new_outbox(path, 5)
    table = SqliteTable(TableRef(url=str(path), table="outbox", column="id"))
    table.check()
    known = table.condition()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM outbox")
        connection.execute("ALTER TABLE outbox ADD COLUMN more TEXT")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    assert table.condition() == known, "rows may go, and the highest id stays"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE outbox")
    new_outbox(path, 2)
    with pytest.raises(RefusedError, match="gives id 3 next, below position 6"):
        refuse_another("outbox", known.identity, 6, 0, table.condition())
    path.unlink()
    new_outbox(path, 9)
    with pytest.raises(RefusedError, match=rf"made again.*position 6 belongs to {known.identity}"):
        refuse_another("outbox", known.identity, 6, 0, table.condition())


# Both, in a pipeline


@pytest.fixture(params=["postgres", "sqlite"])
def outbox(request: pytest.FixtureRequest, scratch: Path, name: str) -> tuple[Table, Callable[[int], None], Run]:
    """The source; a function that makes the table again with so many rows; one that runs SQL."""
    if request.param == "sqlite":
        path = scratch / "app.db"

        def remade(rows: int) -> None:
            path.unlink(missing_ok=True)
            new_outbox(path, rows)

        def run(text: str) -> None:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(text)

        return Table(path, "outbox"), remade, run
    url = request.getfixturevalue("postgres_url")
    run = request.getfixturevalue("sql")

    def again(rows: int) -> None:
        run(f"DROP TABLE IF EXISTS {name}; {MADE['serial'].format(t=name)}")
        run(f"INSERT INTO {name} (body) SELECT 'x' FROM generate_series(1, {rows})")

    return Table(url, name), again, run


def test_a_table_made_again_while_the_pipeline_is_stopped_is_refused_with_both_named(
    outbox: tuple[Table, Callable[[int], None], Run], scratch: Path, spark: Any
) -> None:
    table, remade, run = outbox
    remade(5)
    pipeline = (
        atonce.Pipeline("outbox", checkpoint=str(scratch / "checkpoint"), say=lambda _: None)
        .read(table)
        .write(atonce.SQLite(scratch / "out.db", table="rows"))
    )
    pipeline.run(available_now=True)
    run(f"INSERT INTO {table.table} (body) VALUES ('more')")
    pipeline.run(available_now=True)
    remade(20)
    with pytest.raises(LedgerMismatch, match=rf"table '{table.table}' was deleted and made again: its id is .*: 7"):
        pipeline.run(available_now=True)
    with sqlite3.connect(scratch / "out.db") as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (6,)
    pipeline.reset("earliest")
    pipeline.run(available_now=True)
    with sqlite3.connect(scratch / "out.db") as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (26,)


def test_a_table_made_again_under_a_running_pipeline_stops_it(
    outbox: tuple[Table, Callable[[int], None], Run], scratch: Path, spark: Any
) -> None:
    from atonce.delivery.events import Event, Step

    table, remade, _ = outbox
    remade(5)

    class Remake:
        """Right after the first batch the table is made again, with more rows than were read."""

        done = False

        def on_event(self, event: Event) -> None:
            if event.step is Step.DELIVERED and not self.done:
                self.done = True
                remade(20)

    watcher = Remake()
    pipeline = (
        atonce.Pipeline("outbox", checkpoint=str(scratch / "checkpoint"), say=lambda _: None, observer=watcher)
        .read(table)
        .write(atonce.SQLite(scratch / "out.db", table="rows"))
    )
    with pipeline.running() as run:
        run.start()
        with pytest.raises(RefusedError, match="was made again, or its ids begin again"):
            run.wait()
    assert watcher.done
    with sqlite3.connect(scratch / "out.db") as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (5,)
