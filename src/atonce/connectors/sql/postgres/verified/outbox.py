"""Input for a table source: an outbox in the scratch schema, one row per record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql

from atonce.connectors.contract import Feed, InputRecord
from atonce.connectors.sql.postgres.verified.connection import connected
from atonce.connectors.sql.verified import OUTBOX, TAKES, values


class PostgresOutboxFeed(Feed):
    """The id and the columns that the pipeline names, all text."""

    takes = TAKES

    def __init__(self, url: str, id_column: str, columns: Sequence[str]) -> None:
        self._url, self._id, self._columns = url, id_column, columns

    def prepare(self, partitions: int) -> None:
        texts = sql.SQL("").join(sql.SQL(", {} text").format(sql.Identifier(name)) for name in self._columns)
        made = sql.SQL("CREATE TABLE {} ({} bigserial PRIMARY KEY{})")
        with connected(self._url, autocommit=True) as connection:
            connection.execute(made.format(sql.Identifier(OUTBOX), sql.Identifier(self._id), texts))

    def make_again(self, records: Sequence[InputRecord]) -> None:
        with connected(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(OUTBOX)))
        self.prepare(1)
        self.give(records)

    def give(self, records: Sequence[InputRecord]) -> None:
        with connected(self._url) as connection:
            self._insert(connection, records)

    def give_oldest_last(self, records: Sequence[InputRecord]) -> Callable[[], None]:
        older = psycopg.connect(self._url)
        self._insert(older, records[:1])
        self.give(records[1:])

        def commit() -> None:
            if not older.closed:
                older.commit()
                older.close()

        return commit

    def _insert(self, connection: psycopg.Connection[Any], records: Sequence[InputRecord]) -> None:
        columns = sql.SQL(", ").join(sql.Identifier(name) for name in self._columns)
        places = sql.SQL(", ").join(sql.Placeholder() for _ in self._columns)
        words = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(OUTBOX), columns, places)
        with connection.cursor() as cursor:
            cursor.executemany(words, [values(record, len(self._columns)) for record in records])
