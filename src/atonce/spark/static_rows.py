"""Rows that are known beforehand as a plain Spark DataFrame: what a source's stream is compared with under verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def static_rows(spark: Any, schema: Any, known: Mapping[str, Sequence[Any]]) -> Any:
    """The columns of `schema`; null where nothing is known beforehand."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    from atonce.spark.versions import arrow_schema

    # Each column by the type that it has: of values that are all null Spark could not tell it.
    typed = arrow_schema(schema)
    columns = {
        field.name: pa.array(known[field.name], type=typed.field(field.name).type)
        for field in schema.fields
        if field.name in known
    }
    given = spark.createDataFrame(pa.table(columns))
    return given.select(
        *(
            (f.col(field.name) if field.name in known else f.lit(None)).cast(field.dataType).alias(field.name)
            for field in schema.fields
        )
    )
