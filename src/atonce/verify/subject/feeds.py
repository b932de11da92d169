"""How input reaches the subject: appended to its topic, as files in its directory, or as rows of an outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psycopg
from psycopg import sql

from atonce.verify.audit.database import ScratchDatabase
from atonce.verify.subject.contract import Names
from atonce.verify.subject.publisher import Publisher
from atonce.verify.subject.workload import Input
from atonce.verify.wire.cluster import Cluster


class Feed(Protocol):
    def prepare(self, names: Names, partitions: int) -> None: ...

    def give(self, names: Names, records: Sequence[Input]) -> None: ...

    def ends(self, names: Names) -> dict[int, int]:
        """Where the input ends, per partition; empty when that cannot be said in offsets."""

    def remove(self, names: Names) -> None: ...


class TopicFeed:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._publisher = Publisher(cluster)

    def prepare(self, names: Names, partitions: int) -> None:
        self._cluster.create_topic(names.input, partitions)
        self._publisher = Publisher(self._cluster)

    def give(self, names: Names, records: Sequence[Input]) -> None:
        self._publisher.publish(names.input, records)

    def ends(self, names: Names) -> dict[int, int]:
        return self._cluster.patiently(lambda: self._cluster.offsets(names.input))

    def remove(self, names: Names) -> None:
        self._cluster.delete_topic(names.input)


class FilesFeed:
    """One value a line (JSON lines or text), a few files, each put in place whole by a rename."""

    def __init__(self, records_per_file: int) -> None:
        self._per_file = records_per_file
        self._count = 0

    def prepare(self, names: Names, partitions: int) -> None:
        (names.scratch / "in").mkdir(parents=True, exist_ok=True)

    def give(self, names: Names, records: Sequence[Input]) -> None:
        folder = names.scratch / "in"
        for at in range(0, len(records), self._per_file):
            self._count += 1
            made = names.scratch / f"part-{self._count:05d}.json"
            made.write_bytes(b"".join(record.value + b"\n" for record in records[at : at + self._per_file]))
            made.rename(folder / made.name)

    def ends(self, names: Names) -> dict[int, int]:
        return {}

    def remove(self, names: Names) -> None:
        return None


def outbox_columns(source: Any) -> list[str]:
    """The columns of a Table source besides its id."""
    return [name for name in source.columns or ("key", "value") if name != source.column] or ["value"]


class TableFeed:
    """An outbox in the scratch schema, one row per record: the id and the columns that the pipeline names, all text.

    The last column holds the record's value, the others its key; without names there are `key` and `value`.
    """

    def __init__(self, database: ScratchDatabase, source: Any) -> None:
        self._database, self._number, self._columns = database, source.column, outbox_columns(source)

    def prepare(self, names: Names, partitions: int) -> None:
        texts = sql.SQL("").join(sql.SQL(", {} text").format(sql.Identifier(name)) for name in self._columns)
        with psycopg.connect(self._database.direct, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE TABLE outbox ({} bigserial PRIMARY KEY{})").format(sql.Identifier(self._number), texts)
            )

    def give(self, names: Names, records: Sequence[Input]) -> None:
        with psycopg.connect(self._database.direct) as connection:
            self._insert(connection, records)

    def give_oldest_last(self, names: Names, records: Sequence[Input]) -> Callable[[], None]:
        """The first record gets the smallest id and becomes visible after all others: when the result is called."""
        older = psycopg.connect(self._database.direct)
        self._insert(older, records[:1])
        self.give(names, records[1:])

        def commit() -> None:
            if not older.closed:
                older.commit()
                older.close()

        return commit

    def _insert(self, connection: psycopg.Connection[tuple[object, ...]], records: Sequence[Input]) -> None:
        columns = sql.SQL(", ").join(sql.Identifier(name) for name in self._columns)
        places = sql.SQL(", ").join(sql.Placeholder() for _ in self._columns)
        rows = [
            (*[(record.key or b"").decode()] * (len(self._columns) - 1), record.value.decode()) for record in records
        ]
        with connection.cursor() as cursor:
            cursor.executemany(sql.SQL("INSERT INTO outbox ({}) VALUES ({})").format(columns, places), rows)

    def ends(self, names: Names) -> dict[int, int]:
        return {}

    def remove(self, names: Names) -> None:
        return None
