"""How far an outbox may be read: nothing below a planned end may still appear (F29)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from atonce.connectors.sql.database import TableRef
from atonce.connectors.sql.postgres.outbox import PostgresTable
from atonce.connectors.sql.table import Table
from atonce.errors import UsageError


@pytest.fixture
def outbox(postgres_url: str) -> str:
    name = f"outbox_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, body text)".encode())
    return name


@pytest.fixture
def older(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url) as connection:
        yield connection


def insert(connection: psycopg.Connection[Any], table: str, body: str) -> None:
    connection.execute(f"INSERT INTO {table} (body) VALUES (%s)".encode(), (body,))


def test_a_batch_does_not_pass_an_older_transaction_that_is_still_open(
    postgres_url: str, outbox: str, older: psycopg.Connection[Any]
) -> None:
    table = PostgresTable(TableRef(url=postgres_url, table=outbox, column="id"))
    insert(older, outbox, "older")
    with psycopg.connect(postgres_url) as newer:
        insert(newer, outbox, "newer")
    assert table.bounds() == (2, 3), "only the newer row is visible"
    assert table.safe_end(0, wait_s=0) == 0, "id 1 can still appear, so nothing may be read"
    older.commit()
    assert table.safe_end(0, wait_s=10) == 3
    assert [batch["body"].to_pylist() for batch in table.read(0, 3)] == [["older", "newer"]]


def test_writers_are_not_blocked_while_planning_waits(
    postgres_url: str, outbox: str, older: psycopg.Connection[Any]
) -> None:
    table = PostgresTable(TableRef(url=postgres_url, table=outbox, column="id"))
    insert(older, outbox, "older")
    with psycopg.connect(postgres_url) as newer:
        insert(newer, outbox, "newer")
    planned: list[int] = []
    planning = threading.Thread(target=lambda: planned.append(table.safe_end(0, wait_s=30)))
    planning.start()
    for number in range(20):
        with psycopg.connect(postgres_url) as writer:
            writer.execute("SET lock_timeout = '5s'")
            insert(writer, outbox, f"later {number}")
    assert planned == []
    older.commit()
    planning.join(30)
    # 23 would be an end that moved on with every writer; where the thread aimed depends on when it began.
    assert len(planned) == 1 and 3 <= planned[0] < 23, planned


def test_planning_goes_on_where_it_was_when_writers_come_and_go(postgres_url: str, outbox: str) -> None:
    """Each call times out, yet the first writer's end is enough: waiting is never begun anew."""
    table = PostgresTable(TableRef(url=postgres_url, table=outbox, column="id"))
    first, second = psycopg.connect(postgres_url), psycopg.connect(postgres_url)
    insert(first, outbox, "a")
    with psycopg.connect(postgres_url) as newer:
        insert(newer, outbox, "b")
    assert table.safe_end(0, wait_s=0) == 0
    insert(second, outbox, "c")
    first.commit()
    assert table.safe_end(0, wait_s=10) == 3, "the second writer came later, so its ids are above"
    second.commit()
    first.close()
    second.close()


def test_a_transaction_that_rolls_back_leaves_a_gap_and_holds_nothing_up(
    postgres_url: str, outbox: str, older: psycopg.Connection[Any]
) -> None:
    table = PostgresTable(TableRef(url=postgres_url, table=outbox, column="id"))
    insert(older, outbox, "never")
    with psycopg.connect(postgres_url) as newer:
        insert(newer, outbox, "newer")
    older.rollback()
    assert table.safe_end(0, wait_s=10) == 3


def test_a_batch_is_limited_by_rows_not_by_ids(postgres_url: str, outbox: str) -> None:
    table = PostgresTable(TableRef(url=postgres_url, table=outbox, column="id"))
    with psycopg.connect(postgres_url) as writer:
        for number in range(5):
            writer.execute(f"INSERT INTO {outbox} VALUES (%s, 'x')".encode(), (number * 100,))
    with table.view() as view:
        assert view.limited_end(0, 401, 2) == 200
        assert view.limited_end(200, 401, 10) == 401


def test_a_table_without_a_unique_growing_column_is_refused_by_name(postgres_url: str) -> None:
    name = f"t_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"CREATE TABLE {name} (id bigint, other text PRIMARY KEY)".encode())
    with pytest.raises(UsageError, match="no unique index"):
        Table(postgres_url, name).check()
    with pytest.raises(UsageError, match="an integer is needed"):
        Table(postgres_url, name, column="other").check()
    with pytest.raises(UsageError, match="has no column number; it has id, other"):
        Table(postgres_url, name, column="number").check()
    with pytest.raises(UsageError, match="does not exist"):
        Table(postgres_url, "nowhere").check()


def test_explain_names_what_the_table_must_keep_to(postgres_url: str) -> None:
    needs = " ".join(Table(postgres_url, "outbox").traits().needs)
    for word in ("assigned by the insert", "do not change"):
        assert word in needs
    for checked in ("unique", "CACHE", "primary"):
        assert checked not in needs, "what is asked is not left to people to keep to"
