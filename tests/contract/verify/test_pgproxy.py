"""The PostgreSQL-aware proxy on a real server: COMMIT cut before it arrives, and after it is done (F22)."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from atonce.connectors.sql.postgres.verified.proxy import PostgresProxy


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[PostgresProxy]:
    parts = conninfo_to_dict(postgres_url)
    made = PostgresProxy(str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432))
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("DROP TABLE IF EXISTS pgproxy")
        direct.execute("CREATE TABLE pgproxy (n int)")
    yield made
    made.close()


def through(proxy: PostgresProxy, url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(make_conninfo(url, host="127.0.0.1", port=proxy.port, sslmode="disable"))


def rows(url: str) -> list[int]:
    with psycopg.connect(url) as direct:
        return [int(str(row[0])) for row in direct.execute("SELECT n FROM pgproxy ORDER BY n").fetchall()]


def test_everything_else_passes(proxy: PostgresProxy, postgres_url: str) -> None:
    with through(proxy, postgres_url) as connection:
        connection.execute("INSERT INTO pgproxy VALUES (1)")
    assert rows(postgres_url) == [1]


def test_a_commit_cut_before_it_arrives_is_rolled_back(proxy: PostgresProxy, postgres_url: str) -> None:
    rule = proxy.cut_at_commit(nth=1, after=False)
    connection = through(proxy, postgres_url)
    connection.execute("INSERT INTO pgproxy VALUES (1)")
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    rule.wait(5)
    assert rows(postgres_url) == []


def test_a_commit_cut_after_it_was_done_is_visible_and_its_answer_lost(proxy: PostgresProxy, postgres_url: str) -> None:
    rule = proxy.cut_at_commit(nth=2, after=True)
    connection = through(proxy, postgres_url)
    connection.execute("INSERT INTO pgproxy VALUES (1)")
    connection.commit()
    connection.execute("INSERT INTO pgproxy VALUES (2)")
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    rule.wait(5)
    assert rows(postgres_url) == [1, 2]
