"""In the subject's process: what kind of pipeline this is, and what its transform gives as one plain Spark batch.

The batch reads the same input without our source, our sink, a checkpoint or a ledger, so that a clean run that loses
records does not become the measure of the faulted ones.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from atonce.delivery.abilities import as_source
from atonce.pipeline import Pipeline
from atonce.spark.planning.statefulness import default_mode, is_stateful
from atonce.spark.session import session


def look(pipeline: Pipeline, records: Path, result: Path, only: Sequence[str]) -> dict[str, Any]:
    """Writes the batch's rows to `result`, of their columns `only` these if any are named; says why if it cannot."""
    spark = session(pipeline.master, pipeline.spark)
    source = as_source(pipeline.source)
    stream = source.load(spark, source.first_positions(), {})
    planner = pipeline.planner()
    built = planner.applied(stream, hooked=False)
    seen: dict[str, Any] = {"stateful": is_stateful(built), "mode": pipeline.mode or default_mode(built), "shaky": ""}
    try:
        static = pipeline.source.static(spark, stream.schema, pickle.loads(records.read_bytes()))
        batch = planner.applied(static, hooked=False)
        table, again = batch.toArrow(), batch.toArrow()
    except Exception as error:  # whatever Spark or the user's code raises: some operators exist in streams only
        return {**seen, "trouble": str(error).splitlines()[0][:300]}
    if not batch._jdf.queryExecution().analyzed().deterministic():
        seen["shaky"] = "the transform is not deterministic, as its plan says"
    elif _rows(table) != _rows(again):
        seen["shaky"] = "the transform gave other rows when the same batch ran twice"
    if only:
        table = table.select([name for name in only if name in table.column_names])
    parquet.write_table(table, result)
    return {**seen, "trouble": ""}


def _rows(table: Any) -> Counter[bytes]:
    """Its rows in no order. Text may be no UTF-8, so it is never decoded."""
    columns = [[pickle.dumps(cell) for cell in bytes_of(column).to_pylist()] for column in table.columns]
    return Counter(b"".join(cells) for cells in zip(*columns, strict=True))


def bytes_of(column: Any) -> Any:
    """Text as its bytes; whatever else as it is."""
    import pyarrow as pa

    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column
