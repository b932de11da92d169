"""Rows that are known beforehand as a plain Spark DataFrame: what a source's stream is compared with under verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def static_rows(spark: Any, schema: Any, known: Mapping[str, Sequence[Any]]) -> Any:
    """The columns of `schema`; null where nothing is known beforehand."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    given = spark.createDataFrame(pa.table(dict(known)))
    columns = [
        (f.col(field.name) if field.name in known else f.lit(None)).cast(field.dataType).alias(field.name)
        for field in schema.fields
    ]
    return given.select(*columns)
