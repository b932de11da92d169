"""Starts what a query will need while the driver still connects and plans: by a query over nothing.

Spark has a Python process for each step of a source's planning, and one for the tasks; each starts when it is first
needed, a second each, one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from atonce.spark.arrow_job import map_in_arrow

_SCHEMA = "nothing int"


class Nothing(DataSource):
    """A source without a record. Like ours it has its columns asked for and its partitions planned in Python."""

    @classmethod
    def name(cls) -> str:
        return "atonce-nothing"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadNothing()


class _ReadNothing(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())


def warm(spark: Any) -> None:
    with contextlib.suppress(Exception):  # whatever fails here fails again where it is reported
        spark.dataSource.register(Nothing)
        map_in_arrow(spark.read.format(Nothing.name()).load(), _unchanged, _SCHEMA).collect()


def _unchanged(batches: Any) -> Any:
    return batches
