"""The classes of PySpark that a Python data source is made of: connectors take them from here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from atonce.errors import AtOnceError
from atonce.spark.admission import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    limited,
)

__all__ = [
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StructType",
    "SupportsTriggerAvailableNow",
    "cloudpickle",
    "limited",
    "told_in_one_sentence",
]


@contextlib.contextmanager
def told_in_one_sentence() -> Iterator[None]:
    """In a process that Spark starts to ask a source: an error of ours is told without the traceback before it.

    Spark asks its environment for that right after the error, and such a process ends with it.
    """
    try:
        yield
    except AtOnceError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
