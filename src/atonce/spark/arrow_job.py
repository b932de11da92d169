"""`df.mapInArrow` for functions that stay the same from batch to batch: built in the JVM once, and without pandas.

Spark's own asks for pandas at this point and then makes no use of it. Building the function for every batch would cost
a dozen calls into the JVM, 20 ms, which a small batch can feel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from atonce.spark.versions import arrow_function, mapped_in_arrow, parsed_schema

_MOST_KEPT = 4

ArrowFunction = Callable[[Iterator[Any]], Iterator[Any]]


def column(name: str) -> str:
    """A column's name as Spark's expressions quote it."""
    return "`" + name.replace("`", "``") + "`"


@functools.cache
def parsed(schema: str) -> Any:
    """A schema in DDL as Spark's type; parsed once, since the parser is in the JVM."""
    return parsed_schema(schema)


def map_in_arrow(df: Any, function: ArrowFunction, schema: Any) -> Any:
    """For a function that is used once."""
    return ArrowJobs().map(df, function, schema)


class ArrowJobs:
    """Remembers the functions it has built, the last few of them."""

    def __init__(self) -> None:
        self._built: list[tuple[ArrowFunction, Any, list[str], Any]] = []

    def map(self, df: Any, function: ArrowFunction, schema: Any) -> Any:
        """`function` over `df`; one that equals an earlier one is not built again."""
        names = df.columns
        made = next((made for *key, made in self._built if key == [function, schema, names]), None)
        if made is None:
            made = _build(function, schema, names)
            self._built = [*self._built[-_MOST_KEPT + 1 :], (function, schema, names, made)]
        return mapped_in_arrow(df, made)


def _build(function: ArrowFunction, schema: Any, names: list[str]) -> Any:
    from pyspark.sql.functions import col

    udf = arrow_function(function, parsed(schema) if isinstance(schema, str) else schema)
    return udf(*[col(column(name)) for name in names])
