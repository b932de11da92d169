"""One batch after the other into a claimed database sink, and the rows that tests deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.contract.connectors.sql.database import Database, batch, identity, progress


@contextmanager
def opened(database: Database, table: str, spark: Any, **options: Any) -> Iterator[Callable[..., int | None]]:
    """`deliver(df, number)` into a freshly claimed sink, effectively once."""
    who = identity(table)
    sink = database.sink(table, **options).open(who, spark)
    sink.claim()

    def deliver(df: Any, number: int, **about: Any) -> int | None:
        return sink.output_and_progress(batch(df, number, **about), progress(who, number))  # type: ignore[no-any-return]

    try:
        yield deliver
    finally:
        sink.close()


def rows_of(spark: Any, values: str) -> Any:
    """Rows as SQL VALUES with the columns key, value, partition, offset."""
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(key, value, partition, offset)")
