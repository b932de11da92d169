"""In the subject's process: what kind of pipeline this is, and what its transform gives as one plain Spark batch.

The batch reads the same input without our source, our sink, a checkpoint or a ledger, so that a clean run that loses
records does not become the measure of the faulted ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from atonce.connectors.files.source import Files
from atonce.connectors.kafka.topic import Kafka
from atonce.pipeline import as_source
from atonce.spark.session import session
from atonce.spark.statefulness import default_mode, is_stateful


def look(pipeline: Any, rows: Path, result: Path) -> dict[str, Any]:
    """Writes the batch's rows to `result`; when they cannot be had, says why."""
    spark = session(pipeline.master, pipeline.spark)
    source = as_source(pipeline.source)
    stream = source.load(spark, source.first_positions(), {})
    build = pipeline._build(hooked=False)
    built = build(stream, None)
    seen: dict[str, Any] = {"stateful": is_stateful(built), "mode": pipeline.mode or default_mode(built)}
    try:
        table = build(_static(pipeline.source, stream.schema, rows, spark), None).toArrow()
    except Exception as error:  # whatever Spark or the user's code raises: some operators exist in streams only
        return {**seen, "trouble": str(error).splitlines()[0][:300]}
    if isinstance(pipeline.sink, Kafka):
        table = table.select([name for name in ("key", "value") if name in table.column_names])
    parquet.write_table(table, result)
    return {**seen, "trouble": ""}


def _static(source: Any, schema: Any, rows: Path, spark: Any) -> Any:
    """The same input, the same columns, as a DataFrame that is no stream. What is not known of a row is null."""
    from pyspark.sql import functions as f

    if isinstance(source, Files):
        lines = source.format == "json" and source.schema is None
        reader = spark.read.format("text" if lines else source.format).options(**source.options)
        return reader.schema(schema).load(str(source.path))
    given = spark.read.parquet(str(rows))
    columns = [
        (f.col(field.name) if field.name in given.columns else f.lit(None)).cast(field.dataType).alias(field.name)
        for field in schema.fields
    ]
    return given.select(*columns)
