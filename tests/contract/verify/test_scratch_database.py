"""A database of the user's: verify works in a schema of its own, removes it, and touches nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from atonce.connectors.sql.postgres.verified.database import PREFIX, ScratchDatabase
from atonce.connectors.sql.postgres.verified.table import ScratchTable
from atonce.errors import UsageError
from atonce.local.servers.postgres import PostgresServer
from atonce.verify.ground.servers import opened


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    """The user's database, with a table in use."""
    with PostgresServer() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id serial PRIMARY KEY, body text NOT NULL)")
            connection.execute("INSERT INTO orders (body) VALUES ('real'), ('also real')")
        yield server.url


def asked(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def schemas(url: str) -> list[tuple[object, ...]]:
    return asked(url, f"SELECT nspname FROM pg_namespace WHERE nspname LIKE '{PREFIX}%'")


def test_every_run_has_a_schema_of_its_own_and_none_is_left(theirs: str) -> None:
    with closing(ScratchDatabase(theirs)) as database:
        database.fresh("run-1")
        first = schemas(theirs)
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE copied (value text)")
            connection.execute("INSERT INTO copied VALUES ('x')")
        assert len(ScratchTable(database, "copied").rows()) == 1
        database.fresh("run-2")
        assert len(first) == len(schemas(theirs)) == 1 and first != schemas(theirs)
        assert ScratchTable(database, "copied").rows() == []
    assert schemas(theirs) == []


def test_a_commands_table_is_a_copy_whose_rows_and_sequence_are_its_own(theirs: str) -> None:
    before = asked(theirs, "SELECT last_value FROM orders_id_seq")
    with closing(ScratchDatabase(theirs, like="orders")) as database:
        database.fresh("run-1")
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("INSERT INTO orders (body) VALUES ('scratch')")
            with pytest.raises(psycopg.errors.NotNullViolation):
                connection.execute("INSERT INTO orders (body) VALUES (NULL)")
        (row,) = ScratchTable(database, "orders").rows()
        assert row["body"] == "scratch"
    assert asked(theirs, "SELECT body FROM orders ORDER BY id") == [("real",), ("also real",)]
    assert asked(theirs, "SELECT last_value FROM orders_id_seq") == before


def test_a_database_of_the_users_is_not_used_without_consent(theirs: str) -> None:
    with pytest.raises(UsageError, match="--allow-external"):
        opened(ScratchDatabase, theirs, agreed=False)
    assert schemas(theirs) == []


def test_a_database_that_does_not_answer_is_told_before_anything_is_made() -> None:
    with pytest.raises(UsageError, match="does not let us in"):
        ScratchDatabase("postgresql://nobody@127.0.0.1:1/none")
